"""Run a packed wheel before it is written: every case, in torch and in ONNX Runtime, from the unpacked files.

Its processes, which run `opmatrix.wheel.use_unpacked`, import neither opmatrix nor the project. They write outputs,
which this module compares with the data sets at the declared tolerances. Of the frameworks, it imports only onnx.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.basics import step_log
from opmatrix.basics.errors import DistError, many
from opmatrix.basics.processes import signal_name
from opmatrix.basics.step_log import LOGGED, Progress
from opmatrix.basics.version import older
from opmatrix.data import dataset
from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import generator_state, reference_attributes
from opmatrix.data.compare import compare
from opmatrix.data.dataset import DataSet
from opmatrix.data.evaluated import as_outputs
from opmatrix.data.reference import Argument, Reference
from opmatrix.declaration.backward_operator import backward_of, without_gradient
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments, dynamic_axes, graph_inputs, graph_outputs, present
from opmatrix.project.cells import TORCH_EXPORTERS, Cell, Exporter
from opmatrix.project.dtypes import why_not_written
from opmatrix.project.paths import Paths
from opmatrix.signature import signature
from opmatrix.sizes.variadic import nested, of_model, variadic_output
from opmatrix.spec import Case, Lowering, Model, OpSpec
from opmatrix.wheel import settings
from opmatrix.wheel.use_unpacked import DONE, FAILED, NOW

_SITE = ("site-packages", "dist-packages")
_KEPT_LINES = 1000  # the last that the program printed, for the log


@dataclass(frozen=True, kw_only=True)
class _CaseRun:
    """One case, with the data to compare its outputs with. `out` has a folder of outputs for each run, by its label."""

    spec: OpSpec
    model: Model
    case: Case
    data: DataSet
    out: Path

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with each output of each run."""
        for folder in sorted(self.out.iterdir()) if self.out.is_dir() else ():
            found = tuple(dataset.read(folder, has_inputs=False).outputs.values())
            where = f"{self.spec.name}-{self.case.name}, {folder.name}"
            # A model that the wheel's own code exports has all outputs, one of a cell those that its node names.
            kept, declared = graph_outputs(self.spec, self.model), len(of_model(self.spec, self.model).outputs)
            if len(found) not in (declared, len(kept)):
                yield f"{where}: gives {len(found)} outputs, declared: {declared}"
                continue
            lowering: Lowering = "decomposed" if folder.name.endswith("decomposed") else "custom"
            made = _around(self, found)
            made = made if len(made) == len(kept) else present(self.spec, self.model, made)
            for part, actual, expected in zip(kept, made, self.data.outputs.values(), strict=True):
                tolerance = self.spec.tolerances[lowering][signature.dtype_of(part.type, self.model.types)]
                if not (compared := compare(actual, expected, tolerance=tolerance)).ok:
                    yield f"{where}: {part.name}: {compared}"


@dataclass(frozen=True, kw_only=True)
class WheelRun:
    """The operators of one wheel, the cells that they are verified in, and a folder for the program's files."""

    paths: Paths
    name: str
    operators: Sequence[Operator]
    cells: Sequence[Cell]
    torch: str  # the installed version
    folder: Path
    variant: str = ""  # of a folder for `kernels`: where its package is in `folder`
    runs: list[_CaseRun] = field(default_factory=list)

    def job(self) -> dict[str, Any]:
        """Return the program's input, as JSON data."""
        numbers = count()
        jobs = [self._operator(operator, numbers) for operator in self.operators]
        packages = [path for path in sys.path if Path(path).name in _SITE]
        exports = [] if self.variant else list(self._exports(jobs))
        return {
            "name": self.name, "folder": str(self.folder / "wheel"), "packages": packages, "operators": jobs,
            "exports": exports, "kernel": str(self.folder / self.variant) if self.variant else "",
        }  # fmt: skip

    def _operator(self, operator: Operator, numbers: Iterator[int]) -> dict[str, Any]:
        spec = operator.spec
        served = spec.torch is not None and not older(self.torch, signature.stable_abi_since(spec))
        called = next((o.spec for o in self.operators if o.name == backward_of(spec)), None)
        return {
            "name": spec.name,
            "torch": signature.torch_qualified(spec) if served else None,
            "composed": signature.callers_name(spec) if served and _is_called(spec) else None,
            "fake": bool(spec.torch and not spec.torch.overrides),
            "gradient": served and settings.has_gradient(self.paths, spec),
            "torch_op": self.paths.torch_op(operator.name).is_file(),
            "without": list(without_gradient(spec, called)) if called else [],
            "models": [self._model(operator, model, numbers, served=served) for model in operator.models],
        }

    def _model(self, operator: Operator, model: Model, numbers: Iterator[int], *, served: bool) -> dict[str, Any]:
        spec, cases, arguments = operator.spec, [], []
        for index, case in enumerate(model.cases):
            folder = self.paths.data(operator.name, model.name, index)
            data = dataset.read(folder)
            out = self.folder / f"out/{operator.name}/{case.name}"
            around = model.around if served else None  # an exported model has its nodes, the wheel the operator alone
            run = _CaseRun(spec=spec, model=replace(model, around=around), case=case, data=data, out=out)
            if around:
                folder = self.folder / f"around/{operator.name}/{case.name}"
                dataset.write(folder, replace(data, inputs=_inputs_of_operator(run, Reference(self.paths, spec))))
            self.runs.append(run)
            cases.append({"name": f"{operator.name}-{case.name}", "data": str(folder), "out": str(out)})
        fed = graph_inputs(spec, model, model.cases[0])
        arguments = [list(n) if isinstance(n, tuple) else n
                     for n in case_arguments(spec, model.cases[0], range(len(fed)))]  # fmt: skip
        dynamic = [model.dynamic.get(item.part.name, ()) for item in fed]
        dims = {name: f"d{next(numbers)}" for names in dynamic for name in names if name}
        values = signature.attribute_values(spec, model)
        passed = {
            signature.torch_name(a): values[a.name] for a in spec.attributes if a.name in values and a.kind != "tensor"
        }
        call = signature.call_of(spec, passed)
        return {
            "name": model.name,
            "cases": cases,
            "arguments": arguments,
            "inputs": [item.part.name for item in fed],
            "by_position": call.by_position,
            "by_name": call.by_name,
            "composed": asdict(signature.written_call(spec, passed)) if _is_called(spec) else None,
            "generators": {
                name: generator_state(int(number), *signature.seed_range(seed)).hex()
                for name, seed in signature.seeds(spec).items()
                if isinstance(number := passed.get(name), int)
            },
            "axes": [{axis: dims[name] for axis, name in enumerate(names) if name} for names in dynamic],
            "related": {dims[name]: asdict(axis) | {"of": dims.get(axis.of or "")}
                        for name, axis in dynamic_axes(spec, model).items()},
            "graph": [[f"i{next(numbers)}" for _ in fed], [f"o{next(numbers)}" for _ in of_model(spec, model).outputs]],
            "model": "" if served or model.unsupported else str(self._exported(operator, model)),
        }  # fmt: skip

    def _exported(self, operator: Operator, model: Model) -> Path:
        """Return the model of a cell, for an operator that this torch cannot export with the wheel."""
        readable = [cell for cell in operator.cells(self.cells) if not operator.why_unreadable(cell)]
        if not readable:
            raise DistError(f"{operator.name}: ONNX Runtime reads the models of no default cell, so that none is run")
        return self.paths.model(operator.name, "custom", readable[0], model.name)

    def _exports(self, jobs: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the graphs to export: as few as possible, since each takes up to a second.

        One for each exporter, opset, and version of domains: the newest default opset of an operator that ONNX Runtime
        reads. One more for decompositions.
        """
        served = [o for o, job in zip(self.operators, jobs, strict=True) if job["torch"]]
        groups: dict[tuple[Exporter, int, Lowering, int], dict[str, list[str]]] = {}
        for exporter in TORCH_EXPORTERS:
            for operator in served:
                own = [cell for cell in operator.cells(self.cells) if cell.exporter == exporter]
                cells = [cell for cell in own if not operator.why_unreadable(cell)]
                if not cells:
                    continue
                opset = max(cell.opset for cell in cells)
                torch = cells[0].torch or ""
                for lowering in operator.spec.lowerings:
                    for model in operator.at(lowering, opset).models:
                        if model.unsupported or why_not_written(
                            exporter, signature.model_dtypes(operator.spec, model), torch
                        ):
                            continue
                        version = model.domain_version if lowering == "custom" else 1
                        group = groups.setdefault((exporter, opset, lowering, version), {})
                        group.setdefault(operator.name, []).append(model.name)
        domains = {operator.name: operator.spec.onnx for operator in served}
        for number, ((exporter, opset, lowering, version), chosen) in enumerate(groups.items()):
            yield {
                "label": f"{exporter}-opset{opset}" + ("-decomposed" if lowering == "decomposed" else ""),
                "exporter": exporter,
                "opset": opset,
                "operators": list(chosen),
                "models": chosen,
                "decomposed": list(chosen) if lowering == "decomposed" else [],
                "domains": {domains[name].domain: version for name in chosen},
                "path": str(self.folder / f"{number}.onnx"),
            }


def _is_called(spec: OpSpec) -> bool:
    """Return whether the composed operator is called as well: it writes arguments, or takes a generator."""
    return signature.is_mutable(spec) or bool(signature.seeds(spec))


def run(wheel: bytes, use: WheelRun) -> str:
    """Unpack a wheel, use it, and compare; return what ran. Raises DistError with what is wrong."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        archive.extractall(use.folder / "wheel")
    return _run(use, ("torch", "ort"), what="the wheel")


def run_kernel(files: Mapping[str, bytes], use: WheelRun) -> str:
    """Write a folder for `kernels`, use it in torch, and compare; return what ran. Raises DistError as `run`."""
    for name, content in files.items():
        path = use.folder / "kernel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return _run(use, ("torch",), what="the kernel folder")


def _run(use: WheelRun, sides: Iterable[str], *, what: str) -> str:
    path = use.folder / "job.json"
    job, programs = use.job(), [*sides]
    path.write_text(json.dumps(job), encoding="utf-8")
    for number, side in enumerate(programs, 1):
        _start(side, path, what, runs=_case_runs(job, side), which=f"{number} of {len(programs)}")
    problems = {f"{r.spec.name}-{r.case.name}": "\n".join(found) for r in use.runs if (found := list(r.problems()))}
    if problems:
        where = "each case by its operator's name: python -m opmatrix verify"
        text = step_log.summarize_faults(problems, subject=what, where=where)
        raise DistError(f"{what} gives other outputs than the expected ones:\n{text}")
    runs = sum(1 for r in use.runs if r.out.is_dir() for _ in r.out.iterdir())
    return f"{many(len(use.runs), 'case')} in {many(runs, 'run')} from {what}"


def _case_runs(job: Mapping[str, Any], side: str) -> list[str]:
    """Return the name of the case of each run that a program says it begins."""
    cases = {
        (made["name"], model["name"]): [case["name"] for case in model["cases"]]
        for made in job["operators"]
        for model in made["models"]
    }
    models = [(made, model) for made in job["operators"] for model in made["models"]]
    if side == "torch":
        found = [(made["name"], model["name"]) for made, model in models if made["torch"]]
    else:
        found = [(op, model) for export in job["exports"] for op, names in export["models"].items() for model in names]
        found += [(made["name"], model["name"]) for made, model in models if model["model"]]
    return [case for key in found for case in cases[key]]


@dataclass(kw_only=True)
class _Said:
    """What the program printed: what it ran last, why the wheel does not work, whether it is done, and other lines."""

    at: str = "its start"
    failed: str = ""
    done: bool = False
    others: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))


def _start(side: str, path: Path, what: str = "the wheel", *, runs: Sequence[str] = (), which: str = "1 of 1") -> None:
    """Run the program in a process without opmatrix, the project, and what PYTHONPATH and .pth files add. `runs` are
    the cases that it runs, `which` says which program of how many this is.

    It counts to the limits of the step that this process is. Raises DistError unless the program says that it is done.
    """
    where = {"torch": "torch", "ort": "ONNX Runtime"}[side]
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-W", "ignore", str(settings.PROGRAMS[0]), side, str(path)],
        cwd=path.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout
        try:
            said = _listen(process.stdout, where, runs=runs, begin=f"{what} in {where} ({which})")
        except BaseException:  # Ctrl-C
            process.kill()
            raise
    if said.done and process.returncode == 0:
        return
    step_log.detail("\n".join(said.others))
    if process.returncode < 0:
        ended = f"its process died of {signal_name(-process.returncode)}, at {said.at}"
    else:
        early, last = "" if said.done else " before it was done", f": {said.others[-1]}" if said.others else ""
        ended = f"its process ended with exit code {process.returncode}{early}, at {said.at}{last}"
    raise DistError(f"{what} does not work in {where}: {said.failed or ended}")


def _listen(lines: Iterable[str], where: str, *, runs: Sequence[str] = (), begin: str = "") -> _Said:
    """Read what the program prints until it ends. The log gets what it runs, for a step that is stopped at a limit, and
    how many of the `runs` began: of a case in ONNX Runtime, the program also says the model."""
    said, progress, begun, cases = _Said(), Progress(), 0, {*runs}
    step_log.now_running(f"{said.at} in {where}")
    for line in map(str.rstrip, lines):
        if line.startswith(NOW):
            said.at = line.removeprefix(NOW)
            step_log.now_running(f"{said.at} in {where}")
            if (said.at if where == "torch" else said.at.partition(", ")[0]) in cases:
                begun += 1
                far = f"{begin}: {begun} of {len(runs)} runs of cases, {said.at}"
                if LOGGED in os.environ:
                    step_log.now_doing(far)  # the last mark in a log is shown
                else:
                    progress.show(far, begun, len(runs))
        elif line.startswith(FAILED):
            said.failed = line.removeprefix(FAILED)
        elif line == DONE:
            said.done, said.at = True, "its end"
        elif line:
            said.others.append(line)
    return said


def _inputs_of_operator(run: _CaseRun, reference: Reference) -> dict[str, Array]:
    """Return the inputs that `Model.around` passes to the operator, by the names of the case's inputs."""
    seen: list[Sequence[Argument]] = []
    attributes = reference_attributes(run.spec, run.model)

    def op(*arguments: Argument) -> Any:
        seen.append(arguments)
        return nested(run.spec, reference(arguments, attributes))

    _call_around(run, op)
    flat = [a for argument in seen[0] for a in (argument if isinstance(argument, tuple | list) else (argument,))]
    return dict(zip(run.data.inputs, (np.asarray(a) for a in flat if a is not None), strict=True))


def _around(run: _CaseRun, outputs: Sequence[Array]) -> Sequence[Array]:
    """Return the outputs of the model: those from the wheel, or those of `Model.around` if it gets these."""
    if not run.model.around:
        return outputs
    if variadic_output(run.spec):
        return as_outputs(run.spec, _call_around(run, lambda *_: nested(run.spec, tuple(outputs))))
    one = len(outputs) == 1
    made = _call_around(run, lambda *_: outputs[0] if one else tuple(outputs))
    return [np.asarray(made)] if one else [np.asarray(output) for output in made]


def _call_around(run: _CaseRun, op: Any) -> Any:
    assert run.model.around
    return run.model.around(op, *case_arguments(run.spec, run.case, tuple(run.data.inputs.values())))
