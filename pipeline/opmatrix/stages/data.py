"""Write the inputs and expected outputs of every case, once for all versions of torch, opset and ONNX Runtime."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import GraphInput, case_arguments, graph_inputs
from opmatrix.declaration.size_expressions import attribute_sizes, named_sizes, size
from opmatrix.declaration.torch_signature import attribute_values, dtype_of
from opmatrix.errors import DataError
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, Dims, FromKernel, Model, OpSpec, SameAs, shape_of
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.case_arrays import case_arrays, reference_attributes
from opmatrix.testdata.numpy_reference import Argument, Reference
from opmatrix.testdata.onnx_dataset import DataSet


def run(layout: Paths, operator: Operator) -> None:
    """Write all data sets, remove surplus ones. Raises DataError with all unusable cases and then writes nothing."""
    reference = Reference(layout, operator.spec)
    made: dict[Path, DataSet] = {}
    mistakes: dict[str, list[str]] = {}
    for model in operator.models:
        for index, case in enumerate(model.cases):
            try:
                made[layout.data(operator.name, model.name, index)] = _data_set(operator.spec, model, case, reference)
            except DataError as error:
                mistakes.setdefault(str(error), []).append(case.name)
    reference.require_independent()
    if mistakes:
        path = layout.cases(operator.name).relative_to(layout.root)
        raise DataError("\n".join(_line(path, text, *names) for text, names in mistakes.items()))
    for folder, data in made.items():
        onnx_dataset.write(folder, data)
    _remove_surplus(made)
    _write_manifest(layout.data_manifest(operator.name), made)


def _line(path: Path, text: str, first: str, *others: str) -> str:
    """Return the line of a mistake, which may be that of several cases, such as one in the reference."""
    also = f". Also {', '.join(others)}" if others else ""
    return f"{path}: case {first!r}: {text.rstrip('.') if others else text}{also}"


def _data_set(spec: OpSpec, model: Model, case: Case, reference: Reference) -> DataSet:
    fed = graph_inputs(spec, model, case)
    inputs = case_arrays(spec, model, case)
    expected = _expected(spec, model, reference, tuple(case_arguments(spec, case, inputs)))
    _check_shapes(spec, fed, attribute_sizes(spec, attribute_values(spec, model)), expected)
    return DataSet(
        inputs={feed.name: made for feed, made in zip(fed, inputs, strict=True)},
        outputs={model.names.get(o.name, o.name): made for o, made in zip(spec.outputs, expected, strict=True)},
    )


def _expected(spec: OpSpec, model: Model, reference: Reference, arguments: tuple[Argument, ...]) -> tuple[Array, ...]:
    """Return the outputs of the model: those of the operator, or of `Model.around`."""
    attributes = reference_attributes(spec, model)
    if model.around is None:
        return reference(arguments, attributes)
    one = len(spec.outputs) == 1

    def op(*arguments: Argument) -> Array | tuple[Array, ...]:
        outputs = reference(arguments, attributes)
        return outputs[0] if one else outputs

    made = model.around(op, *arguments)
    outputs = (np.asarray(made),) if one else tuple(map(np.asarray, made))
    for part, output in zip(spec.outputs, outputs, strict=True):
        if dtype_name(output) != (declared := dtype_of(part.type, model.types)):
            raise DataError(
                f"{model.around.__name__}() gives {part.name!r} as {dtype_name(output)}, declared: {declared}"
            )
    return outputs


def _check_shapes(spec: OpSpec, fed: Sequence[GraphInput], known: Mapping[str, int], expected: Sequence[Array]) -> None:
    """Raise DataError for an output whose shape differs from its shape rule."""
    shapes = [(feed.part, shape_of(feed.tensor)) for feed in fed]
    first = {part.name: shape for part, shape in reversed(shapes)}
    for part, output in zip(spec.outputs, expected, strict=True):
        match part.shape:
            case SameAs(input=name):
                wanted, rule = first.get(name), f"as input {name!r}"
            case Dims(dims=dims):
                try:
                    named = {**known, **named_sizes(shapes)}
                    wanted, rule = tuple(size(dim, named) for dim in dims), f"{dims}"
                except ValueError as error:
                    raise DataError(f"output {part.name!r}: the shape rule {dims} gives no shape: {error}") from error
            case FromKernel(rank=rank):
                wanted, rule = output.shape, f"rank {rank}"
                if output.ndim != rank:
                    raise DataError(f"the reference gives {part.name!r} the shape {output.shape}, declared: {rule}")
        if output.shape != wanted:
            raise DataError(f"the reference gives {part.name!r} the shape {output.shape}; the shape rule, {rule}, "
                            f"gives {wanted}. Mend its `shape` in spec.py, or the reference")  # fmt: skip


def _write_manifest(path: Path, folders: Iterable[Path]) -> None:
    """Write the hash of every file: the steps of all cells read this one instead of hundreds."""
    files = sorted(file for folder in folders for file in folder.iterdir())
    digests = {str(f.relative_to(path.parent)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    write_text(path, json.dumps(digests, indent=1) + "\n")


def _remove_surplus(written: Mapping[Path, DataSet]) -> None:
    operator = next(iter(written)).parent.parent
    for folder in operator.glob("*/test_data_set_*"):
        if folder not in written:
            shutil.rmtree(folder)
    for model in operator.iterdir():
        if model.is_dir() and not any(model.iterdir()):
            model.rmdir()
