"""Every path of a project: sources, environments and what steps write. No other module spells one.

A path has exactly the axes of the matrix that its content depends on: a library has no opset, a model no ONNX Runtime.
Paths are joined in one call: doit needs thousands of them in every command, and each `/` takes 5 us.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opmatrix.project.cells import Cell

DATA_SET = "test_data_set_"
"""The beginning of a data set's folder in the format of ONNX's backend tests."""

PACKAGE = Path(__file__).resolve().parents[1]

MAIN_PYTHON = "OPMATRIX_MAIN_PYTHON"
"""The variable that has the Python of the main environment, in the processes of other environments."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that all clones share: `opmatrix` in XDG_CACHE_HOME, by default in ~/.cache."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    folder = Path(base) if Path(base).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".cache"
    return folder / "opmatrix"


def shipped(name: str) -> Path:
    """Return ``native/include``, ``native/binding``, ``requirements`` or ``LICENSE``: in the installed package, or at
    the top level of a checkout."""
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parents[1] / name


def _fixed(path: str) -> cached_property[Path]:
    """Return a property: the path, relative to the root."""
    return cached_property(lambda paths: Path(paths.root, path))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else []


def _named(path: str) -> Callable[[Paths, str], Path]:
    """Return a method of one name, of an operator or an environment: the path with the name for ``{}``."""
    return lambda paths, name: paths.root / path.format(name)


@dataclass(frozen=True)
class Paths:
    """The paths of the project whose dodo.py is in `root`. With `sanitized` or `debug` libraries built so, and the
    results computed with them, are in other folders."""

    root: Path
    sanitized: bool = False
    debug: bool = False

    # Sources, of which `published` is written by the stage publish.

    ops = _fixed("ops")
    op = _named("ops/{}")
    spec = _named("ops/{}/spec.py")
    cases = _named("ops/{}/cases.py")
    reference = _named("ops/{}/reference.py")
    # Optional: how an operator becomes ONNX nodes if it is not one node.
    lowering = _named("ops/{}/lowering.py")
    # Optional: what an operator needs in Python for torch.
    torch_op = _named("ops/{}/torch_op.py")
    # Optional: what doit bench times; no step reads it.
    bench = _named("ops/{}/bench.py")

    def published(self, name: str, version: int | None = None) -> Path:
        """The published versions of an operator, a folder per version. Only the stage publish writes it."""
        return self.ops / f"{name}/published" / (str(version) if version else "")

    def published_model(self, name: str, version: int) -> Path:
        return self.published(name, version) / "model.onnx"

    def published_data(self, name: str, version: int) -> Path:
        return self.published(name, version) / "test_data_set_0"

    native = _fixed("native")

    @cached_property
    def include(self) -> Path:
        """Headers for kernels, which include only std: those of the project, else of the installed opmatrix."""
        return self._headers("include")

    @cached_property
    def binding(self) -> Path:
        """Headers for bindings, which may include a framework's headers: as above."""
        return self._headers("binding")

    def _headers(self, name: str) -> Path:
        local = self.native / name
        return local if local.is_dir() else shipped(f"native/{name}")

    @cached_property
    def installed_headers(self) -> Mapping[str, Path]:
        """Those of `include` and `binding` that are of the installed opmatrix, by name."""
        folders = {"include": self.include, "binding": self.binding}
        return {name: folder for name, folder in folders.items() if folder != self.native / name}

    kernel = _named("native/{}/kernel.h")

    def handwritten(self, name: str, file: str) -> Path:
        """A hand-written C++ file: ``kernel.h``, or ``torch.cc`` or ``ort.cc`` in place of the generated binding."""
        return self.native / f"{name}/{file}"

    def header_files(self) -> tuple[Path, ...]:
        """Return the files of `include` and `binding`, sorted."""
        return (*_files(self.include), *_files(self.binding))

    def own_sources(self, name: str) -> tuple[Path, ...]:
        """Return the files of native/<name>/, sorted."""
        return tuple(_files(self.kernel(name).parent))

    def native_sources(self, name: str) -> tuple[Path, ...]:
        """Return the hand-written files that an operator is compiled from: all headers, and its folder."""
        return (*self.header_files(), *self.own_sources(name))

    @cached_property
    def requirements(self) -> tuple[Path, Path]:
        """The folders of pins: files of the project override those of the installed opmatrix."""
        return self.root / "requirements", shipped("requirements")

    def pins(self, environment: str) -> tuple[Path, ...]:
        """The pins of an environment of the matrix: its lock file and, with torch, the lock file of torch."""
        lock = self._pinned(f"{environment}.txt")
        return (lock, self._pinned(f"{environment}-cpu.txt")) if environment.startswith("torch") else (lock,)

    def _pinned(self, name: str) -> Path:
        local, shipped = (folder / name for folder in self.requirements)
        return shipped if shipped.is_file() and not local.is_file() else local

    # Environments of the matrix, such as "torch2.9" and "ort1.18".

    environment = _named(".venv-matrix/{}")
    python = _named(".venv-matrix/{}/bin/python")
    # A folder that exists when the environment is complete.
    stamp = _named(".venv-matrix/{}/stamp")
    # A link to this package, for the Python of the environment.
    package_link = _named(".venv-matrix/{}/package/opmatrix")

    def installed_version(self, environment: str, package: str) -> Path:
        """A file with the version of one package, which the steps that run in the environment read."""
        return self.environment(environment) / f"versions/{package}"

    # A file with a line for each package and its version, for machines that do not make the environment.
    installed_packages = _named(".venv-matrix/{}/packages.txt")

    # Outputs.

    build = _fixed("build")
    state = _fixed("build/state.db")
    lock = _fixed("build/lock")
    reference_pages = _fixed("build/reference")
    # The folders of the workers that a run starts on this machine, and their shared cache.
    workers = _fixed("build/workers")
    # On a worker: the files of the sources that a client sent, and what the server of the project printed.
    sources_list = _fixed("build/sources.json")
    server_log = _fixed("build/server.log")

    # The working folder of a step or a reader of declarations, by its process.
    work = _named("build/work/{}")

    def plan(self, choice: str = "") -> Path:
        """The steps that the last command with these doit variables planned."""
        chosen = f"-{hashlib.sha256(choice.encode()).hexdigest()[:8]}" if choice else ""
        return self.build / f"plan{chosen}.json"

    generated = _named("build/generated/{}")

    def compile_folder(self, name: str, *, debug: bool = False, torch: str | None = None) -> Path:
        """The folder in which one ninja builds one operator: build.ninja, objects, libraries.

        `torch`, such as "2.6", is a version that needs its own library; files of all versions are in the parent folder.
        """
        kind = "sanitize" if self.sanitized else "debug" if debug or self.debug else "compile"
        return self.build / (f"{kind}/{name}/torch{torch}" if torch else f"{kind}/{name}")

    def _result(self, stage: str, name: str, file: str) -> Path:
        """A file that a stage writes of an operator."""
        apart = self.sanitized or self.debug
        return self.compile_folder(name) / file if apart else self.build / f"{stage}/{name}/{file}"

    def discovered_headers(self, name: str, *, torch: str | None = None) -> Path:
        """A list of the files outside the project that the compiler read for an operator."""
        return self.compile_folder(name, torch=torch) / "headers.txt"

    def torch_library(self, name: str, *, debug: bool = False, torch: str | None = None) -> Path:
        """The library that registers the operator in torch: one for many versions, or that of the version `torch`."""
        return self.compile_folder(name, debug=debug, torch=torch) / f"lib{name}_torch.so"

    def ort_library(self, name: str, *, debug: bool = False) -> Path:
        return self.compile_folder(name, debug=debug) / f"lib{name}_ort.so"

    def torch_version(self, name: str, *, torch: str | None = None) -> Path:
        """A file with the torch version that a library over the C++ ABI was compiled for."""
        return self.compile_folder(name, torch=torch) / "torch.txt"

    def objects(self, name: str, *stems: str, torch: str | None = None) -> tuple[Path, ...]:
        """Object files of an operator, for its libraries, those of operators that use it, and those of a wheel."""
        return tuple(self.compile_folder(name, torch=torch) / f"{stem}.o" for stem in stems)

    # The digests of an operator's objects, and of the libraries that its compile step linked from them.
    compiled_record = _named("build/compile/{}/compiled.json")

    def data(self, name: str, model: str, case: int) -> Path:
        """One test data set in the format of ONNX's backend tests: input_<i>.pb and output_<i>.pb."""
        return self.build / f"data/{name}/{model}/{DATA_SET}{case}"

    # Hashes of all test data of an operator: steps depend on this file in place of the data sets.
    data_manifest = _named("build/data/{}/data.json")
    # What a reference in torch computed for the cases.
    reference_calls = _named("build/data/{}/calls.arrays")

    def register_manifest(self, name: str, part: str, *, torch: str) -> Path:
        """The record of one part of the register stage, such as "schema" or "kernel"."""
        return self._result("register", name, f"{part}@torch{torch}.json")

    def compat_record(self, name: str, *, torch: str) -> Path:
        """The record of an operator in torch beyond eager mode."""
        return self.build / f"compat/{name}/torch{torch}.json"

    def agreement(self, name: str, lowering: str, *, torch: str) -> Path:
        """The record of the comparison of exports, of one torch or of several: "2.9+2.13"."""
        return self.build / f"export/{name}/{lowering}/agreement@torch{torch}.json"

    # The record of reading an operator's declaration: its mistakes.
    declaration_record = _named("build/declaration/{}/record.json")

    # The record of what the cases of an operator tell apart.
    cases_record = _named("build/cases/{}/record.json")

    def failure_record(self, operator: str, task: str) -> Path:
        """The record of the failure of a step that no record of a cell or check shows."""
        return self.build / "failed" / operator / f"{task.replace(':', '-')}.json"

    def check_record(self, op: str, check: str, lowering: str | None, torch: str | None) -> Path:
        """The record of a check: a part of register, "agreement", "cases", "compat", "draw-inputs" or "declaration"."""
        if check == "declaration":
            return self.declaration_record(op)
        if check == "cases":
            return self.cases_record(op)
        if check == "draw-inputs":
            return self.drawn_record(op)
        if check == "compat":
            return self.compat_record(op, torch=str(torch))
        if check == "agreement":
            return self.agreement(op, str(lowering), torch=str(torch))
        return self.register_manifest(op, check, torch=str(torch))

    # hypothesis' database, which is otherwise in the current folder.
    hypothesis = _fixed("build/hypothesis")

    # Inputs drawn from the declaration, with the outputs of the reference.
    drawn_inputs = _named("build/draw/{}/drawn.cases")
    # What was drawn for an operator of ONNX alone.
    drawn_record = _named("build/draw/{}/drawn.json")

    def failing_case(self, name: str, case: str) -> Path:
        """A case for which the property test failed: the error, then the source of the case for cases.py."""
        return self.build / "register" / name / "found" / f"{case}.txt"

    def manifest(self, name: str, lowering: str, cell: Cell) -> Path:
        return self.build / f"export/{name}/{lowering}/{cell.export_name}/export.json"

    def graph_drawings(self, name: str, lowering: str, cell: Cell) -> Path:
        """The graph drawings of a cell's models, which only the report reads."""
        return self.build / f"export/{name}/{lowering}/{cell.export_name}/pictures.json"

    def model(self, name: str, lowering: str, cell: Cell, model: str) -> Path:
        return self.build / f"export/{name}/{lowering}/{cell.export_name}/{model}/model.onnx"

    def function_model(self, name: str, cell: Cell, model: str) -> Path:
        """The custom model with a function body for its node, in the folder of the decomposed model."""
        return self.model(name, "decomposed", cell, model).with_name("model_with_functions.onnx")

    def verdict(self, name: str, lowering: str, cell: Cell) -> Path:
        return self._result("verify", name, f"{lowering}/{cell}.json")

    # Cases in folders that run without opmatrix.
    saved_case = _named("build/saved/{}")

    def mismatches(self, record: Path) -> Path:
        """What the report shows of the failing cases of a verdict or a check record; it exists only where one fails."""
        return record.with_suffix(".mismatches.json")

    # What the sanitizers found in an operator.
    sanitized_verdict = _named("build/sanitize/{}/verdict.json")
    # The program for ThreadSanitizer and its calls, and what it found.
    races = _named("build/sanitize/{}/races")
    races_record = _named("build/sanitize/{}/races.json")

    def log(self, task: str) -> Path:
        """The log of the task named ``group:name``."""
        group, _, name = task.partition(":")
        return self.build / "log" / group / f"{name or group}.log"

    def operator_files(self, name: str) -> Iterator[Path]:
        """Yield every folder and log under build/ that contains only results of one operator."""
        yield from self.build.glob(f"*/{name}")
        for end in ("", "-*", "@*"):
            yield from self.build.glob(f"log/*/{name}{end}.log")

    # What a probe measured in an environment, such as "torch2.9".
    probe_result = _named("build/probe/{}.json")

    def combined_folder(self, names: Sequence[str]) -> Path:
        """The folder of the ONNX Runtime library that is linked from several operators."""
        joined = "+".join(names)
        short = joined if len(joined) < 100 else hashlib.sha256(joined.encode()).hexdigest()[:16]
        return self.build / f"combined/{short}"

    def combined_library(self, names: Sequence[str]) -> Path:
        folder = self.combined_folder(names)
        return folder / f"lib{folder.name}_ort.so"

    # What `doit check` finds in a model, by the label of the check.
    model_check = _named("build/check/{}")

    # What doit mutate writes of an operator: shadows of the project, results, and the score.
    mutation = _named("build/mutate/{}")
    mutation_results = _named("build/mutate/{}/results.json")
    mutation_score = _named("build/mutate/{}/score.json")

    # What doit bench writes of an operator: what it timed, and the comparison with another revision.
    bench_record = _named("build/bench/{}/bench.json")
    bench_against = _named("build/bench/{}/against.json")
    # Shadows of the project: with the operator at a revision, and with a copy of the libraries.
    bench_shadow = _named("build/bench/{}/at-revision")
    bench_again = _named("build/bench/{}/again")
    # What torch.compile compiled.
    bench_inductor = _fixed("build/bench-of-all/inductor")

    report = _fixed("build/report")
    # The results of every cell: docs/report.md.
    report_data = _fixed("build/report/report.json")
    # What the verdicts and the graph drawings hold, which the next report reads again only where they changed.
    report_cache = _fixed("build/report/cache.json")
    # The last report with other results, which the new one is compared with.
    previous_report = _fixed("build/report/previous.json")
    # The results of the last runs, a line each.
    report_history = _fixed("build/report/history/runs.jsonl")
    # The seconds that the steps of each operator last took, by stage.
    report_seconds = _fixed("build/report/history/seconds.json")
    origins = _fixed("build/origins.json")

    @property
    def report_files(self) -> tuple[Path, ...]:
        """Every file that the report step writes."""
        return (self.report_data, *(self.report / name for name in ("junit.xml", "summary.md", "index.html")))

    # The verdict files that the report of `doit --shard` is about: one path per line.
    shard_list = _fixed("build/report/shard.txt")
    # The verdict files of a report, valid ones of earlier runs included: one path per line.
    verdict_list = _fixed("build/report/verdicts.txt")
    # The folder in which one ninja links the libraries of a wheel.
    link_folder = _fixed("build/linked")

    def linked_library(self, name: str, side: str) -> Path:
        """The library of the wheel `name` for the `side` "torch" or "ort"."""
        return self.link_folder / f"lib{name}_{side}.so"

    # The digests of these libraries, and of the objects from which they are linked.
    linked_record = _fixed("build/linked/linked.json")
    # The folder that contains only the wheel.
    dist = _fixed("build/dist")
    # The record of the wheel, which the wheel contains too.
    dist_record = _fixed("build/dist.json")
    # A list of the wheels in `dist`, whose names are known only after they are built.
    wheel_list = _fixed("build/dist.txt")
    # The same for a wheel that was built with --unverified.
    unverified_record = _fixed("build/dist-unverified.json")
    unverified_list = _fixed("build/dist-unverified.txt")
    # The folder for the Hugging Face package `kernels`, the digests of its files, and their list.
    kernel_folder = _fixed("build/hf-kernel")
    kernel_record = _fixed("build/hf-kernel.sha256")
    kernel_list = _fixed("build/hf-kernel.txt")
    unverified_kernel_record = _fixed("build/hf-kernel-unverified.sha256")
    unverified_kernel_list = _fixed("build/hf-kernel-unverified.txt")
