"""Every path of a project. No other module writes one down.

A path holds exactly the factors that its content depends on: a library no opset, a model no ONNX Runtime. Paths are
joined in one go: doit asks for thousands of them on every command, and each `/` costs 5 us.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from opmatrix.matrix.cells import Cell

PACKAGE = Path(__file__).resolve().parents[1]


def shipped(name: str) -> Path:
    """Return what ships beside the code: ``native/include``, ``native/binding``, ``requirements`` or ``LICENSE``.

    An installed package contains it; in a checkout it is two folders above the package, at the top level.
    """
    inside = PACKAGE / name
    return inside if inside.exists() else PACKAGE.parents[1] / name


def _fixed(path: str) -> cached_property[Path]:
    """Return a path, relative to the root, that depends on no operator and no cell."""
    return cached_property(lambda layout: Path(layout.root, path))


@dataclass(frozen=True)
class Paths:
    """The folders of the project whose dodo.py stands in `root`.

    With `sanitized` the libraries are those that sanitizers watch, with `debug` those for a debugger; what is proved
    with them has a place of its own.
    """

    root: Path
    sanitized: bool = False
    debug: bool = False

    # What people write.

    ops = _fixed("ops")

    def op(self, name: str) -> Path:
        return self.ops / name

    def spec(self, name: str) -> Path:
        return self.ops / f"{name}/spec.py"

    def cases(self, name: str) -> Path:
        return self.ops / f"{name}/cases.py"

    def reference(self, name: str) -> Path:
        return self.ops / f"{name}/reference.py"

    def lowering(self, name: str) -> Path:
        """How an operator that is not one node becomes ONNX nodes; most have none."""
        return self.ops / f"{name}/lowering.py"

    def torch_op(self, name: str) -> Path:
        """What an operator needs in Python on torch's side; most have none."""
        return self.ops / f"{name}/torch_op.py"

    def published(self, name: str, version: int | None = None) -> Path:
        """What an operator has promised, a folder per version; `doit` reads it, and only `publish` writes it."""
        return self.ops / f"{name}/published" / (str(version) if version else "")

    def published_model(self, name: str, version: int) -> Path:
        return self.published(name, version) / "model.onnx"

    def published_data(self, name: str, version: int) -> Path:
        return self.published(name, version) / "test_data_set_0"

    native = _fixed("native")

    @cached_property
    def include(self) -> Path:
        """Headers for kernels: std only. A project may have its own; most use those of the installed opmatrix."""
        return self._headers("include")

    @cached_property
    def binding(self) -> Path:
        """Headers for bindings: they may include a framework's. As above."""
        return self._headers("binding")

    def _headers(self, name: str) -> Path:
        own = self.native / name
        return own if own.is_dir() else shipped(f"native/{name}")

    def kernel(self, name: str) -> Path:
        return self.native / name / "kernel.h"

    def handwritten(self, name: str, file: str) -> Path:
        """A file of an operator's C++: ``kernel.h``, or a binding that is written by hand, ``torch.cc``, ``ort.cc``."""
        return self.native / f"{name}/{file}"

    def native_sources(self, name: str) -> tuple[Path, ...]:
        """Return what people write and an operator may be compiled from: all headers, and its own folder, sorted."""
        folders = (self.include, self.binding, self.kernel(name).parent)
        return tuple(sorted(p for folder in folders if folder.is_dir() for p in folder.rglob("*") if p.is_file()))

    @cached_property
    def requirements(self) -> tuple[Path, Path]:
        """Where pins are, files per environment: those of the project go before those of the installed opmatrix."""
        return self.root / "requirements", shipped("requirements")

    def pins(self, environment: str) -> tuple[Path, ...]:
        """What an environment beside the main one is made from: its lock and, for torch itself, a further one."""
        lock = self._pinned(f"{environment}.txt")
        return (lock, self._pinned(f"{environment}-cpu.txt")) if environment.startswith("torch") else (lock,)

    def _pinned(self, name: str) -> Path:
        own, shipped = (folder / name for folder in self.requirements)
        return shipped if shipped.is_file() and not own.is_file() else own

    # The environments beside the main one, such as "torch2.9" and "ort1.18".

    def environment(self, name: str) -> Path:
        return self.root / ".venv-matrix" / name

    def python(self, environment: str) -> Path:
        return self.environment(environment) / "bin/python"

    def stamp(self, environment: str) -> Path:
        """A folder that is there when an environment is complete."""
        return self.environment(environment) / "stamp"

    def package_link(self, environment: str) -> Path:
        """A link to this package, for the Python of an environment."""
        return self.environment(environment) / "package/opmatrix"

    def installed_version(self, environment: str, package: str) -> Path:
        """A file with the version of one package: what steps that run there are keyed by."""
        return self.environment(environment) / f"versions/{package}"

    # What opmatrix writes.

    build = _fixed("build")
    state = _fixed("build/state.db")
    lock = _fixed("build/lock")
    ort_headers = _fixed("build/headers.json")
    reference_pages = _fixed("build/reference")

    def plan(self, choice: str = "") -> Path:
        """The steps that the last command with these variables planned."""
        chosen = f"-{hashlib.sha256(choice.encode()).hexdigest()[:8]}" if choice else ""
        return self.build / f"plan{chosen}.pickle"

    def generated(self, name: str) -> Path:
        return self.build / f"generated/{name}"

    def compile_folder(self, name: str, *, debug: bool = False, torch: str | None = None) -> Path:
        """The folder in which one ninja builds one operator: build.ninja, objects, libraries.

        `torch`, such as "2.6", is one that has a library of its own; what depends on none is a folder further up.
        """
        kind = "sanitize" if self.sanitized else "debug" if debug or self.debug else "compile"
        return self.build / f"{kind}/{name}" / (f"torch{torch}" if torch else "")

    @property
    def _instrumented(self) -> bool:
        return self.sanitized or self.debug

    def discovered_headers(self, name: str, *, debug: bool = False, torch: str | None = None) -> Path:
        """A list of what the compiler has read for an operator beside the project's own files."""
        return self.compile_folder(name, debug=debug, torch=torch) / "headers.txt"

    def torch_library(self, name: str, *, debug: bool = False, torch: str | None = None) -> Path:
        """The library that gives torch the operator: one for many versions, or that of `torch` alone."""
        return self.compile_folder(name, debug=debug, torch=torch) / f"lib{name}_torch.so"

    def ort_library(self, name: str, *, debug: bool = False) -> Path:
        return self.compile_folder(name, debug=debug) / f"lib{name}_ort.so"

    def torch_version(self, name: str, *, debug: bool = False, torch: str | None = None) -> Path:
        """The torch that a library over its C++ headers was compiled for."""
        return self.compile_folder(name, debug=debug, torch=torch) / "torch.txt"

    def objects(self, name: str, *stems: str) -> tuple[Path, ...]:
        """What an operator gives to libraries: its own, those of operators that use it, and those that ship."""
        return tuple(self.compile_folder(name) / f"{stem}.o" for stem in stems)

    def data(self, name: str, model: str, case: int) -> Path:
        """One test data set in the layout of ONNX's backend tests: input_<i>.pb and output_<i>.pb."""
        return self.build / f"data/{name}/{model}/test_data_set_{case}"

    def data_manifest(self, name: str) -> Path:
        """The fingerprints of all test data of an operator: who reads those files is keyed by this one."""
        return self.build / f"data/{name}/data.json"

    def register_manifest(self, name: str, part: str, *, torch: str) -> Path:
        """The manifest of one part of the register stage, such as "schema" or "kernel"."""
        folder = self.compile_folder(name) if self._instrumented else self.build / "register" / name
        return folder / f"{part}@torch{torch}.json"

    # Where hypothesis keeps what it would otherwise write to the current folder.
    hypothesis = _fixed("build/hypothesis")

    def drawn_inputs(self, name: str) -> Path:
        """Inputs that were drawn from the declaration, with the answers of the reference."""
        return self.build / f"draw/{name}/drawn.pickle"

    def failing_case(self, name: str, case: str) -> Path:
        """A case that the search found: what is wrong with it, then its text for cases.py."""
        return self.build / "register" / name / "found" / f"{case}.txt"

    def export_folder(self, name: str, lowering: str, cell: Cell) -> Path:
        return self.build / f"export/{name}/{lowering}/{cell.export_name}"

    def manifest(self, name: str, lowering: str, cell: Cell) -> Path:
        return self.export_folder(name, lowering, cell) / "export.json"

    def graph_drawings(self, name: str, lowering: str, cell: Cell) -> Path:
        """The models of a cell as the report draws them: no other step reads it."""
        return self.export_folder(name, lowering, cell) / "pictures.json"

    def model(self, name: str, lowering: str, cell: Cell, model: str) -> Path:
        return self.export_folder(name, lowering, cell) / f"{model}/model.onnx"

    def function_model(self, name: str, cell: Cell, model: str) -> Path:
        """The custom model with a function body for its node. It lies with the decomposed one, whose nodes it has."""
        return self.model(name, "decomposed", cell, model).with_name("model_with_functions.onnx")

    def verdict(self, name: str, lowering: str, cell: Cell) -> Path:
        folder = self.compile_folder(name) if self._instrumented else self.build / "verify" / name
        return folder / lowering / f"{cell}.json"

    def sanitized_verdict(self, name: str) -> Path:
        """What the sanitizers said of an operator."""
        return self.build / f"sanitize/{name}/verdict.json"

    def log(self, task: str) -> Path:
        """The log of the task named ``group:name``."""
        group, _, name = task.partition(":")
        return self.build / "log" / group / f"{name or group}.log"

    def operator_files(self, name: str) -> Iterator[Path]:
        """Yield every folder and log under build/ that holds one operator's results and nothing else."""
        yield from self.build.glob(f"*/{name}")
        for end in ("", "-*", "@*"):
            yield from self.build.glob(f"log/*/{name}{end}.log")

    def probe_result(self, environment: str) -> Path:
        """What was measured of one torch or ONNX Runtime, ``torch2.9``."""
        return self.build / f"probe/{environment}.json"

    def combined_folder(self, names: Sequence[str]) -> Path:
        """The folder in which one ONNX Runtime library is linked of several operators."""
        joined = "+".join(names)
        short = joined if len(joined) < 100 else hashlib.sha256(joined.encode()).hexdigest()[:16]
        return self.build / f"combined/{short}"

    def combined_library(self, names: Sequence[str]) -> Path:
        folder = self.combined_folder(names)
        return folder / f"lib{folder.name}_ort.so"

    def model_check(self, label: str) -> Path:
        """What `doit check` finds out about one model."""
        return self.build / "check" / label

    report = _fixed("build/report")
    # What is known about every cell, docs/report.md.
    report_data = _fixed("build/report/report.json")
    # The report that this one is compared with: the last one that said anything else.
    previous_report = _fixed("build/report/previous.json")
    report_page = _fixed("build/report/index.html")

    @property
    def report_files(self) -> tuple[Path, ...]:
        """Every file that the report step writes anew."""
        folder = self.report
        return (self.report_data, folder / "junit.xml", folder / "summary.md", self.report_page)

    # The verdicts that a report tells, those of earlier runs that stand among them: a path a line.
    verdict_list = _fixed("build/report/verdicts.txt")
    # The folder in which one ninja links the libraries that ship.
    link_folder = _fixed("build/linked")

    def linked_library(self, name: str, side: str) -> Path:
        """What a wheel called `name` gives "torch" or "ort"."""
        return self.link_folder / f"lib{name}_{side}.so"

    # The folder that holds the wheel, and nothing else.
    dist = _fixed("build/dist")
    # What is known of the wheel; it is in there as well.
    dist_record = _fixed("build/dist.json")
    # A list of the wheels in `dist`, whose names are known only once they are made.
    wheel_list = _fixed("build/dist.txt")
