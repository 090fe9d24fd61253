"""The inputs of `doit check`, from a .npz file, test data sets, or random, and its tolerances. No runtime. Data sets
are those of https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md: input_<i>.pb and output_<i>.pb, each a
TensorProto, a SequenceProto or an OptionalProto, as the type in the model says."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import (
    AttributeProto,
    MapProto,
    ModelProto,
    NodeProto,
    OptionalProto,
    SequenceProto,
    TensorProto,
    TypeProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from opmatrix.addons.check.graph_walk import format_type, format_value, inputs, spec_of
from opmatrix.addons.check.nodes import attribute_value
from opmatrix.addons.check.sizes import Sizes, Try, dims, is_name, search, size_of
from opmatrix.basics.errors import DataError, UsageError, did_you_mean
from opmatrix.data.arrays import Array, dtype_name, kind
from opmatrix.data.dataset import to_array
from opmatrix.data.ruled_values import random_values
from opmatrix.export.signature import element_dtype
from opmatrix.project.paths import DATA_SET
from opmatrix.signature.signature import onnx_kind, onnx_name
from opmatrix.sizes.values import known_numbers
from opmatrix.spec import DType, OpSpec, Random, Tolerance

Values = dict[str, Any]


def read_npz(path: Path) -> Values:
    """Return the arrays of a .npz file. Raises UsageError for any other file."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except FileNotFoundError as error:
        raise UsageError(f"--inputs {path}: there is no such file") from error
    except Exception as error:  # of zipfile, zlib, tokenize and others, for a damaged file
        raise UsageError(
            f"--inputs {path}: no .npz file: {error}. Write one with numpy.savez(file, name=array)"
        ) from error


def data_set_folders(path: Path) -> list[Path]:
    """Return the data sets in a folder, in order: its own .pb files, or test_data_set_0, test_data_set_1 and so on."""
    if any((path / f"{kind}_0.pb").is_file() for kind in ("input", "output")):
        return [path]
    found = [p for p in path.glob(f"{DATA_SET}*") if p.is_dir() and p.name.removeprefix(DATA_SET).isdigit()]
    return sorted(found, key=lambda p: int(p.name.removeprefix(DATA_SET)))


def read_folder(folder: Path, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> list[Values]:
    """Return the inputs and the outputs of a data set by their names in the model. Raises UsageError.

    Where the files do not name the model's inputs or outputs, their order counts.
    """
    sides = []
    for side, infos in (("input", inputs), ("output", outputs)):
        values = list(_read(folder, side, [i.type for i in infos]))
        names = [name for name, _ in values]
        by_name = len({*names}) == len(names) and {*names} <= {i.name for i in infos}
        order = names if by_name else [i.name for i in infos]
        sides.append({name: value for name, (_, value) in zip(order, values, strict=False)})
    return sides


def _read(folder: Path, kind: str, types: Sequence[TypeProto]) -> Iterator[tuple[str, Any]]:
    for index, declared in enumerate(types):
        path = folder / f"{kind}_{index}.pb"
        if not path.is_file():
            return
        try:
            yield _value(path.read_bytes(), declared)
        except (DecodeError, ValueError, TypeError, OSError) as error:
            raise UsageError(f"{path}: not a {declared.WhichOneof('value')} of ONNX: {error}") from error


def _value(content: bytes, declared: TypeProto) -> tuple[str, Any]:
    """Return the name and the value of a file: an array, a list, a dict, or None for an empty optional."""
    if declared.HasField("sequence_type"):
        sequence = SequenceProto.FromString(content)
        return sequence.name, _list(sequence)
    if declared.HasField("optional_type"):
        optional = OptionalProto.FromString(content)
        if optional.HasField("sequence_value"):
            return optional.name, _list(optional.sequence_value)
        return optional.name, to_array(optional.tensor_value) if optional.HasField("tensor_value") else None
    if declared.HasField("map_type"):
        pairs = MapProto.FromString(content)
        return pairs.name, numpy_helper.to_dict(pairs)
    tensor = TensorProto.FromString(content)
    return tensor.name, to_array(tensor)


def _list(sequence: SequenceProto) -> list[Any]:
    if sequence.elem_type == SequenceProto.TENSOR:
        return [to_array(tensor) for tensor in sequence.tensor_values]
    return numpy_helper.to_list(sequence)


MOST_DRAWN = 2**26  # elements of one input, in 0.5 GB as they are drawn
_ELEMENTS = {*TensorProto.DataType.values()} - {TensorProto.UNDEFINED}

Shapes = Mapping[str, tuple[int, ...]]


def draw(
    wanted: Sequence[ValueInfoProto], shapes: Shapes, sizes: Sizes, model: ModelProto, operators: Sequence[OpSpec]
) -> dict[str, Array]:
    """Return inputs of these `shapes`, else of the sizes of their open axes.

    Values obey the rules of the `operators` that take them. Raises UsageError where nothing can be drawn.
    """
    arrays = {v.name: _array(v, shapes[v.name] if v.name in shapes else _shape(v, sizes)) for v in wanted}
    for node in model.graph.node:
        if spec := spec_of(node, operators):
            arrays |= _obeying(node, spec, arrays, model)
    return arrays


def require_drawable(shapes: Shapes, wanted: Sequence[ValueInfoProto]) -> None:
    """Raise UsageError for an input that is no tensor or has a size below 0, and for a shape of no input, or one that
    the model does not take."""
    by_name = {value.name: value for value in wanted}
    for name, shape in shapes.items():
        if name not in by_name:
            has = ", ".join(by_name) or "none"
            raise UsageError(f"--shape: the model has no input {name!r}, it has: {has}{did_you_mean(name, by_name)}")
        if not _takes(by_name[name], shape):
            shown = ",".join(map(str, shape))
            raise UsageError(f"--shape {name}={shown}: the model takes {format_type(by_name[name].type)}")
    for value in wanted:
        if not value.type.HasField("tensor_type"):
            why = f"is no tensor but {format_type(value.type)}: what it takes cannot be drawn"
            raise UsageError(f"input {value.name!r} {why}")
        sizes = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if any(n < -1 for n in sizes):
            raise UsageError(f"input {value.name!r} has a size below 0: {sizes}. Export the model again")


def _shape(value: ValueInfoProto, sizes: Sizes) -> tuple[int, ...]:
    found = [size_of(dim, sizes) for dim in dims(value)]
    return tuple(1 if size is None else max(size, 0) for size in found)


def _takes(value: ValueInfoProto, shape: Sequence[int]) -> bool:
    """Return whether an input takes a shape: each size that the model gives is that of the shape."""
    sizes = [None if isinstance(dim, str) else dim for dim in dims(value)]
    fits = len(sizes) == len(shape) and all(s in (None, n) for s, n in zip(sizes, shape, strict=True))
    return fits or not value.type.tensor_type.HasField("shape")


def _array(value: ValueInfoProto, shape: tuple[int, ...]) -> Array:
    """Return normally distributed floats, or 0s and 1s for integers, which may be indices.

    An input of one element is often a parameter, and most parameters accept 1. Raises UsageError for what is not drawn.
    """
    element = value.type.tensor_type.elem_type
    if element not in _ELEMENTS:
        why = f"the element type {element}, which is none of ONNX's. Export the model again"
        raise UsageError(f"input {value.name!r} has {why}")
    if (count := math.prod(shape)) > MOST_DRAWN:
        why = f"{count:,} elements, and at most {MOST_DRAWN:,} are drawn. Give them with --inputs FILE.npz"
        raise UsageError(f"input {value.name!r} has {why}")
    random = np.random.Generator(np.random.PCG64(zlib.crc32(value.name.encode())))
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
    drawn = {}
    for part, name in taken:
        if part.values is None or name not in arrays:
            continue
        try:
            numbers = known_numbers(spec, [(p, shapes[n]) for p, n in taken], values)
            tensor, dtype = Random(shape=arrays[name].shape), cast(DType, dtype_name(arrays[name]))
            drawn[name] = random_values(tensor, part.values, numbers, dtype, seed_of=name)
        except (DataError, ValueError, KeyError):  # the operator refuses the call, or a size of its rule is not known
            continue
    return drawn


@dataclass(frozen=True, kw_only=True)
class ModelInputs:
    """Inputs by name, the expected outputs as far as they are known, and where the inputs come from, for messages.

    `file`: the .npz file or the folder of the data set. `shapes` and `sizes`: of drawn inputs, and of their open axes.
    """

    inputs: Mapping[str, Any]
    expected: Mapping[str, Any] = field(default_factory=dict)
    source: str
    file: Path | None = None
    shapes: Shapes = field(default_factory=dict)
    sizes: Sizes = field(default_factory=dict)

    @property
    def drawn(self) -> bool:
        return self.file is None

    def __str__(self) -> str:
        arrays = ", ".join(f"{name} {format_value(a)}" for name, a in self.inputs.items())
        return f"inputs {self.source}" + (f": {arrays}" if arrays else "")


def given_inputs(model: ModelProto, path: Path, inputs_path: Path | None) -> list[ModelInputs]:
    """Return the inputs in `inputs_path`, a .npz file or a folder of data sets; without it, in the data sets next to
    the model, if they are of this model. Raises UsageError where they do not fit the model."""
    wanted, outputs = inputs(model), list(model.graph.output)
    if inputs_path and not inputs_path.is_dir():
        arrays = read_npz(inputs_path)
        expected = {o.name: arrays.pop(o.name) for o in outputs if o.name in arrays}
        fed = _fit(arrays, wanted, str(inputs_path))
        return [ModelInputs(inputs=fed, expected=expected, source=f"from {inputs_path.name}", file=inputs_path)]
    folders = data_set_folders(inputs_path or path.parent)
    if inputs_path and not folders:
        raise UsageError(f"--inputs {inputs_path}: no input_0.pb and no test_data_set_0 in that folder")
    sets = []
    for folder in folders:
        try:
            values, expected = read_folder(folder, wanted, outputs)
            if not inputs_path and wanted and not values:
                continue  # outputs alone
            fed = _fit(values, wanted, folder.name)
        except UsageError:
            if inputs_path or not any(other for other in path.parent.glob("*.onnx") if other.name != path.name):
                raise
            continue  # of another model in that folder
        sets.append(ModelInputs(inputs=fed, expected=expected, source=f"from {folder.name}", file=folder))
    return sets


def drawn_inputs(
    model: ModelProto, operators: Sequence[OpSpec], shapes: Shapes, tries: Sequence[Try] = ()
) -> Iterator[ModelInputs]:
    """Yield random inputs of these `shapes`, and of the sizes that `search` tries for each other open axis.
    `tries`: as there. Raises UsageError where none can be drawn."""
    wanted = inputs(model)
    require_drawable(shapes, wanted)
    known = {d: n for v in wanted for d, n in zip(dims(v), shapes.get(v.name, ()), strict=False) if isinstance(d, str)}
    drawn = False
    for sizes in search(model, wanted, known, tries):
        try:
            arrays = draw(wanted, shapes, sizes, model, operators)
        except UsageError:
            if not drawn:
                raise
            continue  # too large with these sizes
        drawn = True
        axes = "".join(f", {name} = {size}" for name, size in sizes.items() if is_name(name))
        drawn_shapes = {name: array.shape for name, array in arrays.items()}
        yield ModelInputs(inputs=arrays, source=f"chosen at random{axes}", shapes=drawn_shapes, sizes=sizes)


def find_inputs(
    model: ModelProto, path: Path, inputs_path: Path | None, operators: Sequence[OpSpec], shapes: Shapes | None = None
) -> ModelInputs:
    """Return the first inputs: those with `shapes`, else given ones, else drawn ones. Raises UsageError."""
    found = [] if shapes else given_inputs(model, path, inputs_path)
    return found[0] if found else next(drawn_inputs(model, operators, shapes or {}))


def _fit(values: Mapping[str, Any], wanted: Sequence[ValueInfoProto], source: str) -> dict[str, Any]:
    """Return the values in the order of the inputs. Raises UsageError for one that is unknown, missing or unfit."""
    names = [i.name for i in wanted]
    for name in values:
        if name not in names:
            has = ", ".join(names) or "none"
            raise UsageError(f"{source}: the model has no input {name!r}, it has: {has}{did_you_mean(name, names)}")
    for value in wanted:
        if value.name not in values:
            raise UsageError(f"{source}: nothing for the input {value.name!r}, a {format_type(value.type)}")
        array = values[value.name]
        if not value.type.HasField("tensor_type"):
            continue  # ONNX Runtime compares them
        dtype_fits = dtype_name(array) == element_dtype(value.type.tensor_type.elem_type)
        if not dtype_fits or not _takes(value, array.shape):
            raise UsageError(
                f"{source}: {value.name!r} is {format_value(array)}, the model takes {format_type(value.type)}"
            )
    ordered = {name: values[name] for name in names}
    return {n: np.asarray(v, order="C") if isinstance(v, np.ndarray) else v for n, v in ordered.items()}


# The errors of all nodes add up, so these are wider than an operator's tolerances. They follow the decimal digits of
# the dtype: float32 has 7, float64 16, float16 3, bfloat16 2.
DEFAULTS: Mapping[DType, Tolerance] = {
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float64": Tolerance(rtol=1e-9, atol=1e-10),
    "float16": Tolerance(rtol=1e-2, atol=1e-3),
    "bfloat16": Tolerance(rtol=5e-2, atol=1e-2),
    "float8_e4m3fn": Tolerance(rtol=0.25, atol=0.05),
    "float8_e5m2": Tolerance(rtol=0.5, atol=0.05),
    "float8_e4m3fnuz": Tolerance(rtol=0.25, atol=0.05),
    "float8_e5m2fnuz": Tolerance(rtol=0.5, atol=0.05),
}


def tolerances(rtol: float | None, atol: float | None) -> dict[str, Tolerance]:
    """Return the tolerance of each floating dtype; all other dtypes must be equal."""
    given = {name: value for name, value in (("rtol", rtol), ("atol", atol)) if value is not None}
    return {str(dtype): replace(default, **given) for dtype, default in DEFAULTS.items()}
