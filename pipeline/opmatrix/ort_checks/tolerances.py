"""Print an operator's measured errors, its conditioning, and the tolerance that they call for. Writes nothing.

The models run in ONNX Runtime here, and the kernel in torch in a process of its own: the two do not share one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from opmatrix.basics.errors import DataError, UsageError, VerifyError
from opmatrix.data import dataset
from opmatrix.data.arrays import Array, numpy_dtype
from opmatrix.data.case_arrays import reference_attributes
from opmatrix.data.compare import EXACT
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import FLOATS, Reference
from opmatrix.data.truth import Judge, read_judges
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.declaration.models import case_arguments, graph_outputs, present
from opmatrix.judge import tolerance_need
from opmatrix.judge.tolerance_need import LOOSE, Measured
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells
from opmatrix.signature.signature import dtype_of, has_ort_library, is_parameter
from opmatrix.spec import Case, DType, Lowering, Model, Tolerance

ELEMENTS = 5000  # of a case's inputs, whose conditioning is measured
Key = tuple[str, DType]  # an output and its dtype


@dataclass(frozen=True, kw_only=True)
class _CaseData:
    model: Model
    index: int
    case: Case
    data: DataSet


@dataclass(frozen=True, kw_only=True)
class _Data:
    """The cases of an operator with their data, and what follows from them for each output and dtype."""

    paths: Paths
    operator: Operator

    @cached_property
    def cases(self) -> tuple[_CaseData, ...]:
        """The cases that can run. Raises DataError where their data are missing."""
        judges: Mapping[Path, Judge] = read_judges(self.paths.data_manifest(self.operator.name))
        return tuple(
            _CaseData(model=model, index=index, case=case, data=dataset.read(folder, judge=judges.get(folder)))
            for model in self.operator.models
            if not model.unsupported
            for index, case in enumerate(model.cases)
            for folder in (self.paths.data(self.operator.name, model.name, index),)
        )

    def outputs(self, one: _CaseData, arrays: Sequence[Array]) -> Iterator[tuple[Key, Array]]:
        for part, array in zip(graph_outputs(self.operator.spec, one.model), arrays, strict=True):
            yield (part.name, dtype_of(part.type, one.model.types)), array

    @cached_property
    def scales(self) -> dict[Key, float]:
        found: dict[Key, list[Array]] = {}
        for one in self.cases:
            for key, array in self.outputs(one, [*one.data.outputs.values()]):
                found.setdefault(key, []).append(array)
        return {key: tolerance_need.scale(arrays) for key, arrays in found.items()}

    def measure(self, one: _CaseData, actual: Sequence[Array], lowering: Lowering) -> dict[Key, Measured]:
        expected = dict(self.outputs(one, [*one.data.outputs.values()]))
        return {
            key: tolerance_need.measure(
                array, expected[key], tolerance=self.tolerance(lowering, key), scale=self.scales[key]
            )
            for key, array in self.outputs(one, actual)
        }

    def tolerance(self, lowering: Lowering, key: Key) -> Tolerance:
        return self.operator.spec.tolerances[lowering].get(key[1], EXACT)

    def moved(self) -> dict[Key, float]:
        """Return the largest movement of each output in cases that are small and not judged in the declared dtype."""
        spec, found = self.operator.spec, dict[Key, float]()
        reference = Reference(self.paths, spec)
        fixed = [index for index, part in enumerate(spec.inputs) if is_parameter(part)]
        for one in self.cases:
            inputs, precision = [*one.data.inputs.values()], one.data.judge.precision
            if one.model.around or precision == "declared dtype" or sum(i.size for i in inputs) > ELEMENTS:
                continue
            arguments = tuple(case_arguments(spec, one.case, inputs))
            attributes = reference_attributes(spec, one.model)
            moved = tolerance_need.movements(reference, arguments, attributes, precision=precision, fixed=fixed)
            for (key, expected), movement in zip(
                self.outputs(one, [*one.data.outputs.values()]),
                present(spec, one.model, moved) if moved is not None else (),
                strict=moved is not None,
            ):
                by = tolerance_need.moved_scaled(movement, expected, scale=self.scales[key])
                found[key] = max(found.get(key, 0.0), by)
        return found


def run(paths: Paths, operator: Operator, *, in_torch: bool = False) -> None:
    """Print the table; `in_torch`: the errors of the kernel in torch, as JSON. Raises UsageError before a first run."""
    data = _Data(paths=paths, operator=operator)
    try:
        if in_torch:
            print(json.dumps([[*key, vars(found)] for key, found in _in_torch(data).items()]))
            return
        lines = [*_table(data)]
    except (DataError, VerifyError, FileNotFoundError) as error:
        raise UsageError(f"{error}\nErrors are measured on what is built. Run: doit {operator.name}") from error
    print("\n".join(lines))


def _in_torch(data: _Data) -> dict[Key, Measured]:
    import torch

    from opmatrix.torch_checks.kernel_check import CaseCheck, call
    from opmatrix.torch_ops import load

    loaded = load.load(data.paths, data.operator)
    found: dict[Key, Measured] = {}
    with torch.no_grad():
        for one in data.cases:
            check = CaseCheck(
                spec=data.operator.spec, model=one.model, case=one.case, data=one.data, overload=loaded.overload
            )
            for _ in loaded.levels.each():
                _add(found, data.measure(one, call(check), "custom"))
    return found


def _add(found: dict[Key, Measured], more: Mapping[Key, Measured]) -> None:
    for key, measured in more.items():
        found[key] = found.get(key, Measured()) | measured


def _of_torch(data: _Data) -> dict[Key, Measured]:
    """Return what a child process measured in torch; nothing for an operator without a torch side."""
    name = data.operator.name
    if data.operator.spec.torch is None:
        return {}
    command = [sys.executable, "-m", "opmatrix", "tolerances", name, "--in-torch"]
    done = subprocess.run(command, cwd=data.paths.root, capture_output=True, text=True)
    try:
        return {(output, dtype): Measured(**found) for output, dtype, found in json.loads(done.stdout.splitlines()[-1])}
    except (ValueError, IndexError, TypeError) as error:
        why = (done.stderr.strip() or f"it ended with {done.returncode}").splitlines()[-1]
        raise VerifyError(f"the kernel cannot be measured in torch: {why}") from error


def _in_ort(data: _Data, lowering: Lowering, cells: Sequence[Cell]) -> dict[Key, Measured]:
    """Return the errors of ONNX Runtime with one thread in some cells."""
    from opmatrix.ort_checks.judge_case import ONE_THREAD
    from opmatrix.ort_checks.sessions import OrtSessions, call

    paths, spec = data.paths, data.operator.spec
    custom = lowering == "custom" and has_ort_library(spec)
    specs = [spec, *(load_operator(paths, name).spec for name in spec.uses)]
    levels = custom and any(one.cpu_levels for one in specs)
    runtime = OrtSessions(paths.ort_library(spec.name) if custom else None, cpu_levels=levels)
    found: dict[Key, Measured] = {}
    for cell in cells:
        sessions = {}
        refused = {model.name for model in data.operator.at(lowering, cell.opset).models if model.unsupported}
        for one in data.cases:
            if one.model.name in refused:
                continue
            if one.model.name not in sessions:
                content = paths.model(spec.name, lowering, cell, one.model.name).read_bytes()
                sessions[one.model.name] = runtime.sessions(content, settings=[ONE_THREAD])[ONE_THREAD]
            for _ in runtime.levels.each():
                actual = call(sessions[one.model.name], one.data.inputs)
                _add(found, data.measure(one, actual, lowering))
    return found


def _cells(data: _Data, lowering: Lowering) -> list[Cell]:
    """Return the exported default cells of the oldest and of the newest opset. Raises VerifyError where none is."""
    paths, operator = data.paths, data.operator
    there = [c for c in operator.cells(chosen_cells(paths)) if paths.manifest(operator.name, lowering, c).is_file()]
    if not there:
        raise VerifyError(f"no model of the lowering {lowering!r} is exported")
    return list(dict.fromkeys((min(there, key=lambda c: c.opset), max(there, key=lambda c: c.opset))))


_HEADER = ("lowering", "dtype", "output", "in", "error", "relative", "ULP", "of limit")


def _table(data: _Data) -> Iterator[str]:
    """Yield the lines: per lowering, dtype and output the errors, then what they call for."""
    operator = data.operator
    judged = sorted({one.data.judge.precision for one in data.cases})
    yield f"{operator.name}: {len(data.cases)} cases, compared in {', '.join(judged)}"
    torch, moved = _of_torch(data), data.moved()
    for lowering in operator.spec.lowerings:
        cells = _cells(data, lowering)
        opsets = " and ".join(str(opset) for opset in dict.fromkeys(cell.opset for cell in cells))
        sides = {f"ONNX Runtime {cells[0].ort}, opset {opsets}": _in_ort(data, lowering, cells)}
        if lowering == "custom" and torch:
            sides = {"torch": torch, **sides}
        for key in data.scales:
            yield ""
            yield f"{lowering} {key[1]} {key[0]}"
            for side, found in sides.items():
                m = found[key]
                yield (
                    f"  {side + ':':<34} error {m.error:.1e}, relative {m.relative:.1e}, {m.ulp:.3g} ULP, "
                    f"{100 * m.tolerance_used:.2g}% of the limit"
                )
            worst = Measured()
            for found in sides.values():
                worst |= found[key]
            yield from _verdict(data, lowering, key, worst, moved.get(key))


def _verdict(data: _Data, lowering: Lowering, key: Key, worst: Measured, moved: float | None) -> Iterator[str]:
    """Yield the lines about one output: its conditioning, the declared tolerance, and the one that is called for."""
    declared, dtype = data.tolerance(lowering, key), key[1]
    if dtype not in FLOATS:
        yield f"  {'declared:':<34} {_shown(declared)}; it is {dtype}, so it is equal or not"
        return
    if moved is None:
        yield f"  {'inputs moved by 1 ULP:':<34} not measured: no case is small and compared in more than its dtype"
    else:
        yield f"  {'inputs moved by 1 ULP:':<34} the output moves by {moved:.1e} of its size"
    unit = float(np.spacing(np.ones((), numpy_dtype(dtype))))
    called = tolerance_need.called_for(worst, unit=unit, scale=data.scales[key])
    times = tolerance_need.looser(declared, called, moved or 0.0, scale=data.scales[key])
    yield f"  {'declared:':<34} {_shown(declared)}"
    yield f"  {'called for:':<34} {_shown(called)}"
    if times > LOOSE:
        why = f"Narrow it, or say why in ops/{data.operator.name}/README.md"
        yield f"  LOOSE: {times:.0e} times what is called for. {why}"


def _shown(tolerance: Tolerance) -> str:
    return f"rtol={tolerance.rtol:g} atol={tolerance.atol:g}"
