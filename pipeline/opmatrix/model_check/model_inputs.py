"""The inputs of `doit check`: from a .npz file, test data sets, or random. Imports NumPy and onnx alone."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, ValueInfoProto

from opmatrix.errors import UsageError, did_you_mean
from opmatrix.export.signature import element_dtype
from opmatrix.model_check import data_sets
from opmatrix.model_check.drawn_inputs import Shapes, draw, require_drawable
from opmatrix.model_check.open_sizes import Sizes, dims, is_name, search
from opmatrix.model_check.type_text import format_type, format_value
from opmatrix.spec import OpSpec
from opmatrix.testdata.arrays import dtype_name


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


DrawnInputs = Generator[ModelInputs, bool | None, None]


def given_inputs(model: ModelProto, path: Path, given: Path | None) -> list[ModelInputs]:
    """Return the inputs in `given`, a .npz file or a folder of data sets; without it, in the data sets next to the
    model, if they are of this model. Raises UsageError where they do not fit the model."""
    wanted, outputs = inputs(model), list(model.graph.output)
    if given and not given.is_dir():
        arrays = data_sets.read_npz(given)
        expected = {o.name: arrays.pop(o.name) for o in outputs if o.name in arrays}
        fed = _fit(arrays, wanted, str(given))
        return [ModelInputs(inputs=fed, expected=expected, source=f"from {given.name}", file=given)]
    folders = data_sets.folders(given or path.parent)
    if given and not folders:
        raise UsageError(f"--inputs {given}: no input_0.pb and no test_data_set_0 in that folder")
    found = []
    for folder in folders:
        try:
            values, expected = data_sets.read_folder(folder, wanted, outputs)
            if not given and wanted and not values:
                continue  # outputs alone
            fed = _fit(values, wanted, folder.name)
        except UsageError:
            if given or not any(other for other in path.parent.glob("*.onnx") if other.name != path.name):
                raise
            continue  # of another model in that folder
        found.append(ModelInputs(inputs=fed, expected=expected, source=f"from {folder.name}", file=folder))
    return found


def drawn_inputs(model: ModelProto, operators: Sequence[OpSpec], given: Shapes) -> DrawnInputs:
    """Yield random inputs of the shapes in `given`, and of the sizes that `open_sizes.search` tries for each other open
    axis. Each is answered with whether the model computes with it. Raises UsageError where none can be drawn."""
    wanted = inputs(model)
    require_drawable(given, wanted)
    known = {d: n for v in wanted for d, n in zip(dims(v), given.get(v.name, ()), strict=False) if isinstance(d, str)}
    tries = search(model, wanted, known)
    ran: bool | None = None
    drawn = False
    with suppress(StopIteration):
        while True:
            sizes = tries.send(ran)
            try:
                arrays = draw(wanted, given, sizes, model, operators)
            except UsageError:
                if not drawn:
                    raise
                ran = False  # too large with these sizes
                continue
            drawn = True
            axes = "".join(f", {name} = {size}" for name, size in sizes.items() if is_name(name))
            shapes = {name: array.shape for name, array in arrays.items()}
            ran = yield ModelInputs(inputs=arrays, source=f"chosen at random{axes}", shapes=shapes, sizes=sizes)


def find_inputs(
    model: ModelProto, path: Path, given: Path | None, operators: Sequence[OpSpec], shapes: Shapes | None = None
) -> ModelInputs:
    """Return the first inputs: those with `shapes`, else given ones, else drawn ones. Raises UsageError."""
    found = [] if shapes else given_inputs(model, path, given)
    return found[0] if found else next(drawn_inputs(model, operators, shapes or {}))


def inputs(model: ModelProto) -> list[ValueInfoProto]:
    """Return the inputs without the initializers, which models before IR version 4 list as inputs too."""
    constants = {i.name for i in model.graph.initializer}
    return [i for i in model.graph.input if i.name not in constants]


def _fit(given: Mapping[str, Any], wanted: Sequence[ValueInfoProto], source: str) -> dict[str, Any]:
    """Return the values in the order of the inputs. Raises UsageError for one that is unknown, missing or unfit."""
    names = [i.name for i in wanted]
    for name in given:
        if name not in names:
            has = ", ".join(names) or "none"
            raise UsageError(f"{source}: the model has no input {name!r}, it has: {has}{did_you_mean(name, names)}")
    for value in wanted:
        if value.name not in given:
            raise UsageError(f"{source}: nothing for the input {value.name!r}, a {format_type(value.type)}")
        array, tensor = given[value.name], value.type.tensor_type
        if not value.type.HasField("tensor_type"):
            continue  # ONNX Runtime compares them
        dtype_fits = dtype_name(array) == element_dtype(tensor.elem_type)
        sizes = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in tensor.shape.dim]
        fits = len(sizes) == array.ndim and all(s in (None, n) for s, n in zip(sizes, array.shape, strict=True))
        if not dtype_fits or (tensor.HasField("shape") and not fits):
            raise UsageError(
                f"{source}: {value.name!r} is {format_value(array)}, the model takes {format_type(value.type)}"
            )
    return {name: _contiguous(given[name]) for name in names}


def _contiguous(value: Any) -> Any:
    return np.ascontiguousarray(value).reshape(value.shape) if isinstance(value, np.ndarray) else value
