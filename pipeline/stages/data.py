"""Write the inputs and expected outputs of every case: once, for every torch, opset and ONNX Runtime."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.data import dataset
from pipeline.data.arrays import Array, array, seed_of
from pipeline.data.dataset import DataSet
from pipeline.data.reference import Reference
from pipeline.errors import DataError
from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.schema import attribute_values, dtype_of, stored
from pipeline.spec import AttributeValue, Case, Input, Model, OpSpec, SameAs


def run(layout: Layout, operator: Operator) -> None:
    """Write every test data set of `operator`, and remove those that no case asks for any more.

    Raises DataError where a case or the reference gives none: all of them in one message, and nothing is written.
    """
    reference = Reference(layout, operator.spec)
    made: dict[Path, DataSet] = {}
    mistakes: list[str] = []
    for model in operator.models:
        for index, case in enumerate(model.cases):
            try:
                made[layout.data(operator.name, model.name, index)] = _data_set(operator.spec, model, case, reference)
            except DataError as error:
                mistakes.append(f"{layout.cases(operator.name).relative_to(layout.root)}: case {case.name!r}: {error}")
    if mistakes:
        raise DataError("\n".join(mistakes))
    for folder, data in made.items():
        dataset.write(folder, data)
    _remove_surplus(made)
    _write_manifest(layout.data_manifest(operator.name), made)


def _data_set(spec: OpSpec, model: Model, case: Case, reference: Reference) -> DataSet:
    inputs = {part.name: _input(spec, part, model=model, case=case) for part in spec.inputs}
    expected = reference(tuple(inputs.values()), _attributes(spec, model))
    outputs = {part.name: output for part, output in zip(spec.outputs, expected, strict=True)}
    _check_shapes(spec, inputs, outputs)
    return DataSet(inputs=_renamed(model, inputs), outputs=_renamed(model, outputs))


def _input(spec: OpSpec, part: Input, *, model: Model, case: Case) -> Array:
    try:
        seed = seed_of(spec.name, case.name, part.name)
        return array(case.inputs[part.name], dtype_of(part.type, model.types), seed_of=seed)
    except DataError as error:
        raise DataError(f"input {part.name!r}: {error}") from error


def _renamed(model: Model, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return `arrays` by their names in the model's graph."""
    return {model.names.get(name, name): array for name, array in arrays.items()}


def _attributes(spec: OpSpec, model: Model) -> dict[str, AttributeValue]:
    """Return what the reference is called with: every attribute, as ONNX stores it."""
    values = attribute_values(spec, model)
    return {a.name: stored(a, values[a.name]) for a in spec.attributes if a.name in values}


def _check_shapes(spec: OpSpec, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    for part in spec.outputs:
        found = outputs[part.name].shape
        if isinstance(part.shape, SameAs) and found != (wanted := inputs[part.shape.input].shape):
            raise DataError(f"the reference gives {part.name!r} the shape {found}; the shape rule, as input "
                            f"{part.shape.input!r}, gives {wanted}")  # fmt: skip


def _write_manifest(path: Path, folders: Iterable[Path]) -> None:
    """Write a fingerprint of every file. One small file stands for hundreds, in every cell that is keyed by them."""
    files = sorted(file for folder in folders for file in folder.iterdir())
    digests = {str(f.relative_to(path.parent)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}
    write_text(path, json.dumps(digests, indent=1) + "\n")


def _remove_surplus(kept: Iterable[Path]) -> None:
    kept = set(kept)
    operator = next(iter(kept)).parent.parent
    for folder in operator.glob("*/test_data_set_*"):
        if folder not in kept:
            shutil.rmtree(folder)
    for model in operator.iterdir():
        if model.is_dir() and not any(model.iterdir()):
            model.rmdir()
