"""What a model is run with: numbers from a file, from the test data beside it, or drawn. Needs NumPy and onnx."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from opmatrix.errors import DataError, UsageError, did_you_mean
from opmatrix.export.signature import element_dtype
from opmatrix.model_check.type_text import shown
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.onnx_dataset import DATA_SET


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """`inputs` by name, what is `expected` of them where that is known, and where they come from, for a message."""

    inputs: Mapping[str, Array]
    expected: Mapping[str, Array] = field(default_factory=dict)
    source: str
    drawn: bool = False

    def __str__(self) -> str:
        told = ", ".join(f"{name} {described(a)}" for name, a in self.inputs.items())
        return f"inputs {self.source}" + (f": {told}" if told else "")


def find_inputs(model: ModelProto, path: Path, given: Path | None) -> ModelInputs:
    """Return what to run a model with: `given`, a .npz file; else the data set beside it; else what is drawn.

    Raises UsageError for what does not fit the model's inputs.
    """
    wanted = inputs(model)
    folder = path.parent / f"{DATA_SET}0"
    if given:
        return ModelInputs(inputs=_fit(_read_npz(given), wanted, str(given)), source=f"from {given.name}")
    if folder.is_dir():
        return _data_set(folder, model)
    numbers, sizes = _drawn(wanted)
    told = "".join(f", {name} = {size}" for name, size in sizes.items())
    return ModelInputs(inputs=numbers, source=f"drawn{told}", drawn=True)


def inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs that a model must be given: not the initializers that old models list as well."""
    constants = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in constants]


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError as error:
        raise UsageError(f"--inputs {path}: there is no such file") from error
    except (OSError, ValueError, AttributeError, EOFError, zlib.error) as error:
        raise UsageError(
            f"--inputs {path}: no .npz file: {error}. Write one with numpy.savez(file, name=array)"
        ) from error


def _data_set(folder: Path, model: ModelProto) -> ModelInputs:
    wanted = inputs(model)
    try:
        found = (
            onnx_dataset.read(folder)
            if wanted
            else onnx_dataset.DataSet(inputs={}, outputs=onnx_dataset.read_outputs(folder))
        )
    except DataError as error:
        raise UsageError(str(error)) from error
    outputs = [o.name for o in model.graph.output]
    # Data sets of others may have no names: then the places count.
    by_name = found.inputs
    if not by_name.keys() >= {i.name for i in wanted}:
        by_name = {i.name: array for i, array in zip(wanted, found.inputs.values(), strict=False)}
    named = {n: a for n, a in found.outputs.items() if n in outputs}
    expected = named or dict(zip(outputs, found.outputs.values(), strict=False))
    given = {i.name: by_name[i.name] for i in wanted if i.name in by_name}
    return ModelInputs(inputs=_fit(given, wanted, folder.name), expected=expected, source=f"from {folder.name}")


def _fit(given: Mapping[str, Array], wanted: Sequence[ValueInfoProto], source: str) -> dict[str, Array]:
    """Return the numbers in the order of the inputs. Raises UsageError for one too many, one that lacks or misfits."""
    names = [i.name for i in wanted]
    for name in given:
        if name not in names:
            has = ", ".join(names) or "none"
            raise UsageError(f"{source}: the model has no input {name!r}, it has: {has}{did_you_mean(name, names)}")
    for value in wanted:
        if value.name not in given:
            raise UsageError(f"{source}: nothing for the input {value.name!r}, a {shown(value.type)}")
        array, tensor = given[value.name], value.type.tensor_type
        if value.type.HasField("tensor_type") and dtype_name(array) != element_dtype(tensor.elem_type):
            raise UsageError(f"{source}: {value.name!r} is {described(array)}, the model takes {shown(value.type)}")
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        fits = len(sizes) == array.ndim and all(s in (None, n) for s, n in zip(sizes, array.shape, strict=True))
        if tensor.HasField("shape") and not fits:
            raise UsageError(f"{source}: {value.name!r} is {described(array)}, the model takes {shown(value.type)}")
    return {name: np.ascontiguousarray(given[name]).reshape(given[name].shape) for name in names}


def _drawn(wanted: Sequence[ValueInfoProto]) -> tuple[dict[str, Array], dict[str, int]]:
    """Return numbers for every input, and the size that each axis with a name was given: 2, 3, and so on."""
    sizes: dict[str, int] = {}
    numbers: dict[str, Array] = {}
    for value in wanted:
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            raise UsageError(
                f"input {value.name!r} is no tensor but {shown(value.type)}: what it takes cannot be drawn"
            )
        shape = []
        for dim in tensor.shape.dim:
            if dim.dim_param:
                shape.append(sizes.setdefault(dim.dim_param, 2 + len(sizes)))
            else:
                shape.append(dim.dim_value if dim.HasField("dim_value") else 2)
        numbers[value.name] = _draw(value.name, tensor.elem_type, tuple(shape))
    return numbers, sizes


def _draw(name: str, element: int, shape: tuple[int, ...]) -> Array:
    """Return normally distributed numbers; small ones where they are integers, since those may be indices.

    What is one number is a parameter more often than data, and 1 does for most of these.
    """
    random = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    if element == TensorProto.STRING:
        return np.full(shape, "text", dtype=object)
    wanted = helper.tensor_dtype_to_np_dtype(element)
    if int(np.prod(shape)) == 1:
        return np.ones(shape).astype(wanted)
    if wanted.kind in "iub":
        return random.integers(0, 2, shape).astype(wanted)
    return random.standard_normal(shape).astype(wanted)


def described(array: Array) -> str:
    """Return an array as a message shows it: ``float32[2, 3]``."""
    return f"{dtype_name(array)}[{', '.join(map(str, array.shape))}]"


def spread(array: Any) -> str:
    """Return the same with the range of its values: ``float32[2, 3] in -1.2 to 3.4``; of what is no tensor the type."""
    if not isinstance(array, np.ndarray):
        return type(array).__name__
    if array.dtype == np.object_ or not array.size:
        return described(array)
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    odd = array.size - finite.size
    told = f" in {finite.min():.4g} to {finite.max():.4g}" if finite.size else ""
    return described(array) + told + (f" and {odd} NaN or infinite" if odd else "")
