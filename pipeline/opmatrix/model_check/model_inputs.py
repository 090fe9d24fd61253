"""The inputs of `doit check`: from a .npz file, a test data set, or random. Imports NumPy and onnx alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import cast

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from opmatrix.declaration.torch_signature import onnx_kind, onnx_name
from opmatrix.declaration.value_rules import known_numbers
from opmatrix.errors import DataError, UsageError, did_you_mean
from opmatrix.export.signature import element_dtype
from opmatrix.model_check.custom_nodes import attribute_value
from opmatrix.model_check.graph_walk import spec_of
from opmatrix.model_check.type_text import format_array, format_type
from opmatrix.project.paths import DATA_SET
from opmatrix.spec import DType, OpSpec, Random
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import kind
from opmatrix.testdata.ruled_values import random_values

MOST_DRAWN = 2**26  # elements of one input, in 0.5 GB as they are drawn
_ELEMENTS = {*TensorProto.DataType.values()} - {TensorProto.UNDEFINED}


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """Inputs by name, the expected outputs as far as they are known, and where the inputs come from, for messages."""

    inputs: Mapping[str, Array]
    expected: Mapping[str, Array] = field(default_factory=dict)
    source: str
    drawn: bool = False

    def __str__(self) -> str:
        arrays = ", ".join(f"{name} {format_array(a)}" for name, a in self.inputs.items())
        return f"inputs {self.source}" + (f": {arrays}" if arrays else "")


def find_inputs(model: ModelProto, path: Path, given: Path | None, operators: Sequence[OpSpec]) -> ModelInputs:
    """Return the inputs from `given`, a .npz file; else from the data set next to the model; else random ones.

    Random ones obey the rules of the `operators` that take them. Raises UsageError where inputs do not fit the model.
    """
    wanted = inputs(model)
    folder = path.parent / f"{DATA_SET}0"
    if given:
        return ModelInputs(inputs=_fit(_read_npz(given), wanted, str(given)), source=f"from {given.name}")
    if folder.is_dir():
        return _data_set(folder, model)
    arrays, sizes = _random_inputs(wanted)
    for node in model.graph.node:
        if spec := spec_of(node, operators):
            arrays |= _obeying(node, spec, arrays, model)
    axes = "".join(f", {name} = {size}" for name, size in sizes.items())
    return ModelInputs(inputs=arrays, source=f"drawn{axes}", drawn=True)


def inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs without the initializers, which models before IR version 4 list as inputs too."""
    constants = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in constants]


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError as error:
        raise UsageError(f"--inputs {path}: there is no such file") from error
    except Exception as error:  # of zipfile, zlib, tokenize and others, for a damaged file
        raise UsageError(
            f"--inputs {path}: no .npz file: {error}. Write one with numpy.savez(file, name=array)"
        ) from error


def _data_set(folder: Path, model: ModelProto) -> ModelInputs:
    wanted = inputs(model)
    try:
        found = onnx_dataset.read(folder, has_inputs=bool(wanted))
    except DataError as error:
        raise UsageError(str(error)) from error
    outputs = [o.name for o in model.graph.output]
    # The tensors of a data set may have no names: then their order counts.
    by_name = found.inputs
    if not by_name.keys() >= {i.name for i in wanted}:
        by_name = {i.name: array for i, array in zip(wanted, found.inputs.values(), strict=False)}
    named = {n: a for n, a in found.outputs.items() if n in outputs}
    expected = named or dict(zip(outputs, found.outputs.values(), strict=False))
    given = {i.name: by_name[i.name] for i in wanted if i.name in by_name}
    return ModelInputs(inputs=_fit(given, wanted, folder.name), expected=expected, source=f"from {folder.name}")


def _fit(given: Mapping[str, Array], wanted: Sequence[ValueInfoProto], source: str) -> dict[str, Array]:
    """Return the arrays in the order of the inputs. Raises UsageError for one that is unknown, missing or unfit."""
    names = [i.name for i in wanted]
    for name in given:
        if name not in names:
            has = ", ".join(names) or "none"
            raise UsageError(f"{source}: the model has no input {name!r}, it has: {has}{did_you_mean(name, names)}")
    for value in wanted:
        if value.name not in given:
            raise UsageError(f"{source}: nothing for the input {value.name!r}, a {format_type(value.type)}")
        array, tensor = given[value.name], value.type.tensor_type
        dtype_fits = not value.type.HasField("tensor_type") or dtype_name(array) == element_dtype(tensor.elem_type)
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        fits = len(sizes) == array.ndim and all(s in (None, n) for s, n in zip(sizes, array.shape, strict=True))
        if not dtype_fits or (tensor.HasField("shape") and not fits):
            raise UsageError(
                f"{source}: {value.name!r} is {format_array(array)}, the model takes {format_type(value.type)}"
            )
    return {name: np.ascontiguousarray(given[name]).reshape(given[name].shape) for name in names}


def _random_inputs(wanted: Sequence[ValueInfoProto]) -> tuple[dict[str, Array], dict[str, int]]:
    """Return an array per input, and the size chosen for each named axis: 2, 3, and so on."""
    sizes: dict[str, int] = {}
    arrays: dict[str, Array] = {}
    for value in wanted:
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            raise UsageError(
                f"input {value.name!r} is no tensor but {format_type(value.type)}: what it takes cannot be drawn"
            )
        shape = []
        for dim in tensor.shape.dim:
            if dim.dim_param:
                shape.append(sizes.setdefault(dim.dim_param, 2 + len(sizes)))
            else:
                shape.append(dim.dim_value if dim.HasField("dim_value") else 2)
        if why := _undrawable(tensor.elem_type, shape):
            raise UsageError(f"input {value.name!r} has {why}")
        arrays[value.name] = _random_array(value.name, tensor.elem_type, tuple(shape))
    return arrays, sizes


def _undrawable(element: int, shape: Sequence[int]) -> str:
    """Return why an input cannot be drawn, or ""."""
    if element not in _ELEMENTS:
        return f"the element type {element}, which is none of ONNX's. Export the model again"
    if any(size < 0 for size in shape):
        return f"a size below 0: {list(shape)}. Export the model again"
    if (count := math.prod(shape)) > MOST_DRAWN:
        return f"{count:,} elements, and at most {MOST_DRAWN:,} are drawn. Give them with --inputs FILE.npz"
    return ""


def _random_array(name: str, element: int, shape: tuple[int, ...]) -> Array:
    """Return normally distributed floats, or 0s and 1s for integers, which may be indices.

    An input of one element is often a parameter, and most parameters accept 1.
    """
    random = np.random.Generator(np.random.PCG64(zlib.crc32(name.encode())))
    if element == TensorProto.STRING:
        return np.full(shape, "text", dtype=object)
    wanted = helper.tensor_dtype_to_np_dtype(element)
    if int(np.prod(shape)) == 1:
        return np.ones(shape).astype(wanted)
    if kind(wanted) in "iub":
        return random.integers(0, 2, shape).astype(wanted)
    return random.standard_normal(shape).astype(wanted)


def _obeying(node: NodeProto, spec: OpSpec, arrays: Mapping[str, Array], model: ModelProto) -> dict[str, Array]:
    """Return new values for the inputs of the model that an operator takes under a rule which can be computed here."""
    shapes = {i.name: tuple(i.dims) for i in model.graph.initializer} | {n: a.shape for n, a in arrays.items()}
    further = repeat(spec.inputs[-1]) if spec.inputs and spec.inputs[-1].variadic else ()
    taken = [(part, n) for part, n in zip(chain(spec.inputs, further), node.input, strict=False) if n in shapes]
    given = {(a.name, AttributeProto.AttributeType.Name(a.type)): a for a in node.attribute}
    declared = {(onnx_name(a), onnx_kind(a.kind)): a for a in spec.attributes}
    values = {a.name: attribute_value(a, given[key]) for key, a in declared.items() if key in given}
    found = {}
    for part, name in taken:
        if part.values is None or name not in arrays:
            continue
        try:
            numbers = known_numbers(spec, [(p, shapes[n]) for p, n in taken], values)
            tensor, dtype = Random(shape=arrays[name].shape), cast(DType, dtype_name(arrays[name]))
            found[name] = random_values(tensor, part.values, numbers, dtype, seed_of=name)
        except (DataError, ValueError, KeyError):  # the operator refuses the call, or a size of its rule is not known
            continue
    return found
