"""Print an operator's measured errors, its conditioning, and the tolerance that they call for. Writes nothing.

The models run in ONNX Runtime here, and the kernel in torch in a process of its own: the two do not share one.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from opmatrix.basics.errors import DataError, UsageError, VerifyError
from opmatrix.data import dataset
from opmatrix.data.arrays import Array, dtype_name, numpy_dtype
from opmatrix.data.case_arrays import reference_attributes
from opmatrix.data.compare import EXACT, compare, shown_tolerance
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Argument, Precision, Reference, widened
from opmatrix.data.truth import read_judges
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.declaration.models import case_arguments, graph_outputs, present
from opmatrix.project.cells import Cell
from opmatrix.project.dtypes import FLOATS
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells
from opmatrix.signature.signature import dtype_of, has_ort_library, is_parameter
from opmatrix.spec import AttributeValue, Case, DType, Lowering, Model, Tolerance

ELEMENTS = 5000  # of a case's inputs, whose conditioning is measured
MARGIN = 4  # times the largest measured error: other inputs than those of the cases round otherwise
LOOSE = 100  # times what is called for is loose
PIECES = 8  # of each input, moved one after the other
Key = tuple[str, DType]  # an output and its dtype


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The largest errors of one output. `scaled`: the absolute error as a part of ``scale + |expected|``, see `scale`.

    All are 0 for equal values, inf where only one side is NaN or infinite, or where dtype or shape differ.
    """

    error: float = 0.0
    relative: float = 0.0
    ulp: float = 0.0
    tolerance_used: float = 0.0
    scaled: float = 0.0

    def __or__(self, other: Measured) -> Measured:
        return Measured(**{name: max(value, getattr(other, name)) for name, value in vars(self).items()})


class _CaseData(NamedTuple):
    model: Model
    case: Case
    data: DataSet


@dataclass(frozen=True, kw_only=True)
class _Data:
    paths: Paths
    operator: Operator

    @cached_property
    def cases(self) -> tuple[_CaseData, ...]:
        """The cases that can run. Raises DataError where their data are missing."""
        judges = read_judges(self.paths.data_manifest(self.operator.name))
        return tuple(
            _CaseData(model=model, case=case, data=dataset.read(folder, judge=judges.get(folder)))
            for model in self.operator.models
            if not model.unsupported
            for index, case in enumerate(model.cases)
            for folder in (self.paths.data(self.operator.name, model.name, index),)
        )

    def outputs(self, one: _CaseData, arrays: Sequence[Array] | None = None) -> dict[Key, Array]:
        """Return the outputs of a case by name and dtype: `arrays`, or the expected ones."""
        arrays = [*one.data.outputs.values()] if arrays is None else arrays
        outputs = zip(graph_outputs(self.operator.spec, one.model), arrays, strict=True)
        return {(part.name, dtype_of(part.type, one.model.types)): array for part, array in outputs}

    @cached_property
    def scales(self) -> dict[Key, float]:
        arrays: dict[Key, list[Array]] = {}
        for one in self.cases:
            for key, array in self.outputs(one).items():
                arrays.setdefault(key, []).append(array)
        return {key: scale(of_key) for key, of_key in arrays.items()}

    def add(self, errors: dict[Key, Measured], one: _CaseData, actual: Sequence[Array], lowering: Lowering) -> None:
        """Measure the outputs of a run of a case, and keep the larger errors."""
        expected = self.outputs(one)
        for key, array in self.outputs(one, actual).items():
            tolerance = self.tolerance(lowering, key)
            measured = measure(array, expected[key], tolerance=tolerance, scale=self.scales[key])
            errors[key] = errors.get(key, Measured()) | measured

    def tolerance(self, lowering: Lowering, key: Key) -> Tolerance:
        return self.operator.spec.tolerances[lowering].get(key[1], EXACT)

    def moved(self) -> dict[Key, float]:
        """Return the largest movement of each output in cases that are small and not judged in the declared dtype."""
        spec, largest = self.operator.spec, dict[Key, float]()
        reference = Reference(self.paths, spec)
        fixed = [index for index, part in enumerate(spec.inputs) if is_parameter(part)]
        for one in self.cases:
            inputs, precision = [*one.data.inputs.values()], one.data.judge.precision
            if one.model.around or precision == "declared dtype" or sum(i.size for i in inputs) > ELEMENTS:
                continue
            arguments = tuple(case_arguments(spec, one.case, inputs))
            attributes = reference_attributes(spec, one.model)
            moved = movements(reference, arguments, attributes, precision=precision, fixed=fixed)
            if moved is None:
                continue
            for (key, expected), by in zip(self.outputs(one).items(), present(spec, one.model, moved), strict=True):
                scaled = float(np.max(by / (self.scales[key] + _size(expected)), initial=0.0))
                largest[key] = max(largest.get(key, 0.0), scaled)
        return largest


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
    errors: dict[Key, Measured] = {}
    with torch.no_grad():
        for one in data.cases:
            check = CaseCheck(
                spec=data.operator.spec, model=one.model, case=one.case, data=one.data, overload=loaded.overload
            )
            for _ in loaded.levels.each():
                data.add(errors, one, call(check), "custom")
    return errors


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
    from opmatrix.judge.judge_case import ONE_THREAD
    from opmatrix.ort_checks.sessions import OrtSessions, call

    paths, spec = data.paths, data.operator.spec
    custom = lowering == "custom" and has_ort_library(spec)
    specs = [spec, *(load_operator(paths, name).spec for name in spec.uses)]
    levels = custom and any(one.cpu_levels for one in specs)
    runtime = OrtSessions(paths.ort_library(spec.name) if custom else None, cpu_levels=levels)
    errors: dict[Key, Measured] = {}
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
                data.add(errors, one, call(sessions[one.model.name], one.data.inputs), lowering)
    return errors


def _cells(data: _Data, lowering: Lowering) -> list[Cell]:
    """Return the exported default cells of the oldest and of the newest opset. Raises VerifyError where none is."""
    paths, operator = data.paths, data.operator
    there = [c for c in operator.cells(chosen_cells(paths)) if paths.manifest(operator.name, lowering, c).is_file()]
    if not there:
        raise VerifyError(f"no model of the lowering {lowering!r} is exported")
    return list(dict.fromkeys((min(there, key=lambda c: c.opset), max(there, key=lambda c: c.opset))))


def _table(data: _Data) -> Iterator[str]:
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
            worst = reduce(or_, (found[key] for found in sides.values()))
            yield from _verdict(data, lowering, key, worst, moved.get(key))


def _verdict(data: _Data, lowering: Lowering, key: Key, worst: Measured, moved: float | None) -> Iterator[str]:
    """Yield the lines about one output: its conditioning, the declared tolerance, and the one that is called for."""
    declared, dtype = data.tolerance(lowering, key), key[1]
    if dtype not in FLOATS:
        yield f"  {'declared:':<34} {shown_tolerance(declared)}; it is {dtype}, so it is equal or not"
        return
    if moved is None:
        yield f"  {'inputs moved by 1 ULP:':<34} not measured: no case is small and compared in more than its dtype"
    else:
        yield f"  {'inputs moved by 1 ULP:':<34} the output moves by {moved:.1e} of its size"
    unit = float(np.spacing(np.ones((), numpy_dtype(dtype))))
    called = called_for(worst, unit=unit, scale=data.scales[key])
    times = looser(declared, called, moved or 0.0, scale=data.scales[key])
    yield f"  {'declared:':<34} {shown_tolerance(declared)}"
    yield f"  {'called for:':<34} {shown_tolerance(called)}"
    if times > LOOSE:
        why = f"Narrow it, or say why in ops/{data.operator.name}/README.md"
        yield f"  LOOSE: {times:.0e} times what is called for. {why}"


# What measured errors and the conditioning of an operator call for.


def scale(outputs: Sequence[Array]) -> float:
    """Return the size to which an absolute tolerance is related: that of the largest finite value, at most 1."""
    return min(1.0, max((float(np.max(_size(o), initial=0.0)) for o in outputs), default=0.0)) or 1.0


def measure(actual: Array, expected: Array, *, tolerance: Tolerance, scale: float) -> Measured:
    """Return the errors of one output of one case."""
    found = compare(actual, expected, tolerance=tolerance)
    if found.problem or math.isinf(found.error) or expected.dtype == np.object_:
        return Measured() if found.ok else Measured(**dict.fromkeys(vars(Measured()), math.inf))
    size = _size(expected)
    with np.errstate(all="ignore"):
        error = _size(_difference(actual, expected))  # infinities and NaN are equal here
        relative = np.where(size > 0, error / size, 0.0)
    return Measured(
        error=found.error,
        relative=float(np.max(relative, initial=0.0)),
        ulp=found.ulp,
        tolerance_used=found.tolerance_used,
        scaled=float(np.max(error / (scale + size), initial=0.0)),
    )


def _size(array: Array) -> Array:
    """Return the absolute values; 0 for NaN, infinities and strings."""
    values = np.abs(array.astype(np.float64)) if array.dtype != np.object_ else np.zeros(array.shape)
    return np.where(np.isfinite(values), values, 0.0)


def _difference(a: Array, b: Array) -> Array:
    difference: Array = a.astype(np.float64) - b.astype(np.float64)
    return difference


def movements(
    reference: Reference,
    inputs: Sequence[Argument],
    attributes: Mapping[str, AttributeValue],
    *,
    precision: Precision,
    fixed: Container[int] = (),
) -> list[Array] | None:
    """Return how far each exact output moves when the inputs move by one unit in the last place of their dtype.

    The inputs move piece by piece and the movements add up, because in a sum most of them would cancel if all moved at
    once. `fixed`: the inputs that stay, such as a count. None where the reference raises for a moved input.
    """
    try:
        with np.errstate(all="ignore"):
            exact = reference.raw(widened(inputs, precision), attributes)
            total = [np.zeros(output.shape) for output in exact]
            for moved in _moved(inputs, fixed):
                outputs = [reference.raw(widened(arguments, precision), attributes) for arguments in moved]
                for at, output in enumerate(exact):
                    total[at] += np.max([_size(_difference(found[at], output)) for found in outputs], axis=0)
    except (DataError, ValueError):  # an output of another shape
        return None
    return total


def _moved(inputs: Sequence[Argument], fixed: Container[int]) -> Iterator[list[list[Argument]]]:
    """Yield, for each piece of each floating input, the inputs in which its finite values other than 0 moved: together,
    and alternating."""
    for index, argument in enumerate(inputs):
        if argument is None or index in fixed:
            continue
        arrays = argument if isinstance(argument, tuple) else (argument,)
        for place, array in enumerate(arrays):
            if dtype_name(array) not in FLOATS:
                continue
            for piece in np.array_split(np.arange(array.size), max(1, min(PIECES, array.size))):
                variants: list[list[Argument]] = []
                for signs in (np.ones(len(piece)), np.where(np.arange(len(piece)) % 2, 1.0, -1.0)):
                    moved = array.copy()
                    values = moved.flat[piece]
                    stepped = values + np.spacing(np.abs(values)) * signs.astype(array.dtype)
                    moved.flat[piece] = np.where(np.isfinite(stepped) & (values != 0), stepped, values)
                    one = (*arrays[:place], moved, *arrays[place + 1 :]) if isinstance(argument, tuple) else moved
                    variants.append([*inputs[:index], one, *inputs[index + 1 :]])
                yield variants


def called_for(measured: Measured, *, unit: float, scale: float) -> Tolerance:
    """Return the smallest tolerance, in one digit of 1, 2 or 5, that leaves a margin above the measured error and above
    `unit`, one unit in the last place of 1 in the output's dtype."""
    return _tolerance(max(MARGIN * measured.scaled, unit), scale)


def looser(declared: Tolerance, called: Tolerance, moved: float, *, scale: float) -> float:
    """Return how many times a declared tolerance is what is called for, in the part that is looser. What the rounding
    of the inputs moves is no looseness: another exact kernel may round them."""
    most = _tolerance(moved, scale)
    parts = ((declared.rtol, max(called.rtol, most.rtol)), (declared.atol, max(called.atol, most.atol)))
    return max(d / c if c else 0.0 for d, c in parts)


def _tolerance(scaled: float, scale: float) -> Tolerance:
    return Tolerance(rtol=_rounded_up(scaled), atol=_rounded_up(scaled * scale))


def _rounded_up(value: float) -> float:
    if value == 0 or math.isinf(value):
        return value
    power = 10.0 ** math.floor(math.log10(value))
    digit = next(d for d in (1, 2, 5, 10) if d * power >= value * (1 - 1e-9))
    return float(f"{digit * power:.0e}")
