"""Write the inputs and expected outputs of every case, once for all versions of torch, opset and ONNX Runtime."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.declaration.known_sizes import Known, rule_text
from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import (
    GraphInput,
    case_arguments,
    graph_inputs,
    graph_outputs,
    output_name,
    present,
)
from opmatrix.declaration.torch_signature import attribute_values, dtype_of
from opmatrix.declaration.variadic_outputs import nested, of_model, shapes_by_input
from opmatrix.errors import DataError
from opmatrix.files import digests_by_path, write_text
from opmatrix.progress import Progress
from opmatrix.project.paths import Paths
from opmatrix.spec import AttributeValue, Case, Model, OpSpec, shape_of
from opmatrix.step_log import LOGGED, detail
from opmatrix.testdata import onnx_dataset, torch_reference, truth
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.case_arrays import case_arrays, reference_attributes
from opmatrix.testdata.evaluated_cases import as_outputs
from opmatrix.testdata.numpy_reference import Argument, Reference
from opmatrix.testdata.onnx_dataset import DataSet
from opmatrix.testdata.truth import Judge
from opmatrix.testdata.vectors import read_case

_FULL = 2  # mistakes that the terminal shows whole
_NAMED = 8  # further cases that it names


def run(layout: Paths, operator: Operator) -> None:
    """Write all data sets, remove surplus ones. Raises DataError with all unusable cases and then writes nothing."""
    spec = operator.spec
    reference = Reference(layout, spec)
    in_torch = torch_reference.of(layout, spec) if spec.reference == "torch" else None
    if in_torch:
        in_torch.record()
    made: dict[Path, DataSet] = {}
    judges: dict[Path, Judge] = {}
    path = layout.cases(operator.name).relative_to(layout.root)
    mistakes: dict[tuple[str, str], list[str]] = {}  # by place and text
    progress, total = Progress(), sum(len(model.cases) for model in operator.models)
    for model in operator.models:
        for index, case in enumerate(model.cases):
            done = len(made) + sum(map(len, mistakes.values()))
            progress.show(f"{done} of {total} cases, now {case.name}", done, total)
            folder = layout.data(operator.name, model.name, index)
            try:
                made[folder], judges[folder] = _data_set(
                    operator.spec, model, case, reference, layout.op(operator.name)
                )
            except DataError as error:
                place = f"ops/{spec.name}/spec.py: {error.field}" if isinstance(error, _ShapeRuleError) else str(path)
                mistakes.setdefault((place, str(error)), []).append(case.name)
    reference.require_independent()
    if mistakes:
        raise DataError("\n".join(_shown(spec.name, mistakes)))
    for folder, data in made.items():
        onnx_dataset.write(folder, data)
    _remove_surplus(made)
    _print_fallbacks(layout, operator, judges)
    if in_torch:
        in_torch.write(layout.reference_calls(operator.name))
    written_in = f"torch {in_torch.version}" if in_torch else "numpy"
    if spec.dependent_reference:
        written_in += ", not independent"
    _write_manifest(layout.data_manifest(operator.name), made, judges, reference=written_in)


class _ShapeRuleError(DataError):
    """An output of the reference has another shape than its shape rule gives. `field`: of the rule."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def _shown(name: str, mistakes: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[str]:
    """Yield a line per mistake. The terminal gets the first ones and the names of the other cases, the log all."""
    lines = [_line(place, text, *names) for (place, text), names in mistakes.items()]
    if len(lines) <= _FULL + 1 or LOGGED not in os.environ:
        yield from lines
        return
    detail("\n".join(lines[_FULL:]))
    yield from lines[:_FULL]
    cases = [case for names in list(mistakes.values())[_FULL:] for case in names]
    yield f"{name}: {len(cases)} more cases are unusable: {', '.join(cases[:_NAMED])}{', ...' * (len(cases) > _NAMED)}"


def _line(place: str, text: str, first: str, *others: str) -> str:
    """Return the line of a mistake, which may be that of several cases, such as one in the reference."""
    also = f". Also {', '.join(others)}" if others else ""
    return f"{place}: case {first!r}: {text.rstrip('.') if others else text}{also}"


def _data_set(spec: OpSpec, model: Model, case: Case, reference: Reference, folder: Path) -> tuple[DataSet, Judge]:
    fed = graph_inputs(spec, model, case)
    for feed in fed:
        dtype = dtype_of(feed.part.type, model.types)
        _require_size(f"input {feed.part.name!r}", shape_of(feed.tensor), dtype)
    vectors: tuple[Array, ...] = ()
    if case.expected:
        inputs, vectors = read_case(spec, model, case, folder=folder)
    else:
        inputs = case_arrays(spec, model, case)
    expected, judge = _expected(spec, model, reference, tuple(case_arguments(spec, case, inputs)))
    called = of_model(spec, model)
    _check_shapes(called, fed, attribute_values(spec, model), expected)
    for part, output, vector in zip(called.outputs, expected, vectors, strict=False):  # there may be none
        if output.shape != vector.shape:
            has = f"the vectors ({case.expected.source if case.expected else ''}) have {vector.shape}"
            raise DataError(f"the reference gives {part.name!r} the shape {output.shape}, {has}")
    for part, output in zip(called.outputs, expected, strict=False):
        _require_size(f"output {part.name!r}", output.shape, dtype_name(output))
    names = [output_name(model, part) for part in graph_outputs(spec, model)]
    data = DataSet(
        inputs={feed.name: made for feed, made in zip(fed, inputs, strict=True)},
        outputs=dict(zip(names, present(spec, model, expected), strict=True)),
        vectors=dict(zip(names, present(spec, model, vectors), strict=True)) if vectors else {},
    )
    return data, judge


def _require_size(named: str, shape: Sequence[int], dtype: str) -> None:
    """Raise DataError for a tensor that no file of test data holds, such as one of a case with a 0 too many."""
    if dtype != "string" and (why := onnx_dataset.too_large(math.prod(shape) * np.dtype(dtype).itemsize)):
        raise DataError(f"{named} of shape {tuple(shape)} in {dtype} {why}")


def _expected(
    spec: OpSpec, model: Model, reference: Reference, arguments: tuple[Argument, ...]
) -> tuple[tuple[Array, ...], Judge]:
    """Return the outputs of the model, those of the operator or of `Model.around`, and what judged the operator's."""
    attributes = reference_attributes(spec, model)
    if model.around is None:
        found = truth.evaluate(reference, spec, model.types, arguments, attributes)
        return found.outputs, found.judge
    judge = truth.declared_judge(spec, model.types)

    def op(*arguments: Argument) -> Any:
        nonlocal judge
        found = truth.evaluate(reference, spec, model.types, arguments, attributes)
        judge = found.judge
        return nested(spec, found.outputs)

    outputs = as_outputs(spec, model.around(op, *arguments))
    for part, output in zip(of_model(spec, model).outputs, outputs, strict=True):
        if dtype_name(output) != (declared := dtype_of(part.type, model.types)):
            raise DataError(
                f"{model.around.__name__}() gives {part.name!r} as {dtype_name(output)}, declared: {declared}"
            )
    return outputs, judge


def _check_shapes(
    spec: OpSpec, fed: Sequence[GraphInput], attributes: Mapping[str, AttributeValue], expected: Sequence[Array]
) -> None:
    """Raise DataError for an output whose shape differs from its shape rule."""
    shapes = shapes_by_input((feed.part, shape_of(feed.tensor)) for feed in fed)
    known = Known(spec=spec, shapes=shapes, attributes=attributes)
    decided: dict[str, tuple[int, str]] = {}  # each size that the kernel decides, and the first output that has it
    for part, output in zip(spec.outputs, expected, strict=True):
        rule = rule_text(part.shape)
        try:
            wanted = known.output(part)
        except ValueError as error:
            raise DataError(f"output {part.name!r}: the shape rule {rule} gives no shape: {error}") from error
        if wanted is None or (output.ndim != len(wanted) and None in wanted):
            raise DataError(f"the reference gives {part.name!r} the shape {output.shape}, declared: {rule}")
        shown = "(" + ", ".join("?" if w is None else str(w) for w in wanted) + "," * (len(wanted) == 1) + ")"
        if output.ndim != len(wanted) or any(w not in (None, s) for w, s in zip(wanted, output.shape, strict=True)):
            raise _ShapeRuleError(f"outputs[{part.name!r}].shape", f"the reference gives {part.name!r} the shape "
                                  f"{output.shape}; the shape rule, {rule}, gives {shown}. Correct this rule, or the "
                                  "reference")  # fmt: skip
        for axis, name in known.kernel_axes(part):
            size, first = decided.setdefault(name, (output.shape[axis], part.name))
            if size != output.shape[axis]:
                raise DataError(f"the reference gives {part.name!r} the shape {output.shape}; its shape rule, {rule}, "
                                f"has {name}, which is {size} in {first!r}")  # fmt: skip


def _print_fallbacks(layout: Paths, operator: Operator, judges: Mapping[Path, Judge]) -> None:
    """Print why cases are judged in the declared dtype although the declaration allows more, with their names."""
    cases: dict[str, list[str]] = {}
    for model in operator.models:
        if truth.declared_judge(operator.spec, model.types).reason:
            continue
        for index, case in enumerate(model.cases):
            judge = judges[layout.data(operator.name, model.name, index)]
            if judge.reason:
                cases.setdefault(str(judge), []).append(case.name)
    for judged, names in cases.items():
        print(f"compared in the {judged}: case {', '.join(names)}")


def _write_manifest(path: Path, folders: Iterable[Path], judges: Mapping[Path, Judge], *, reference: str) -> None:
    """Write the hash of every file, since the steps of all cells read this one instead of hundreds, what the reference
    is written in, and the precision in which that of each data set was evaluated."""
    files = sorted(file for folder in folders for file in folder.iterdir())
    digests = digests_by_path(files, path.parent)
    judged_in = {str(folder.relative_to(path.parent)): vars(judge) for folder, judge in judges.items()}
    write_text(path, json.dumps({"files": digests, "reference": reference, "judged_in": judged_in}, indent=1) + "\n")


def _remove_surplus(written: Mapping[Path, DataSet]) -> None:
    operator = next(iter(written)).parent.parent
    for folder in operator.glob("*/test_data_set_*"):
        if folder not in written:
            shutil.rmtree(folder)
    for model in operator.iterdir():
        if model.is_dir() and not any(model.iterdir()):
            model.rmdir()
