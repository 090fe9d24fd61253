"""Write, read and link data sets of ONNX's backend tests: input_<i>.pb and output_<i>.pb, each a TensorProto.

Format: https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import numpy_helper

from opmatrix.errors import DataError, missing
from opmatrix.files import write_bytes
from opmatrix.project.paths import DATA_SET
from opmatrix.testdata.arrays import Array
from opmatrix.testdata.truth import Judge


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Inputs and expected outputs of one case by their names in the graph, in the order of the declaration.

    `vectors`: its outputs from elsewhere, if it has them. `judge`: the precision in which the reference was evaluated,
    which is in the manifest of the data.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    vectors: Mapping[str, Array] = field(default_factory=dict)
    judge: Judge = Judge(precision="declared dtype")  # noqa: RUF009 - it is frozen


def write(folder: Path, data: DataSet) -> None:
    """Write `data`, with equal bytes for equal values, and remove other .pb files."""
    written = set()
    for kind, arrays in (("input", data.inputs), ("output", data.outputs), ("vectors", data.vectors)):
        for index, (name, array) in enumerate(arrays.items()):
            path = folder / f"{kind}_{index}.pb"
            write_bytes(path, numpy_helper.from_array(array, name).SerializeToString(deterministic=True))
            written.add(path)
    for path in set(folder.glob("*.pb")) - written:
        path.unlink()


def read(folder: Path, *, has_inputs: bool = True, judge: Judge | None = None) -> DataSet:
    """Read what `write` wrote, of a model that has inputs or none. Raises DataError for a missing or damaged file."""
    found = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    inputs = _read(folder, "input", found) if has_inputs else {}
    vectors = _read(folder, "vectors", found) if "vectors_0.pb" in found else {}
    made = DataSet(inputs=inputs, outputs=_read(folder, "output", found), vectors=vectors)
    return replace(made, judge=judge) if judge else made


def _read(folder: Path, kind: str, found: Container[str]) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    for index in count():
        if (name := f"{kind}_{index}.pb") not in found:
            break
        try:
            label, array = read_tensor(folder / name)
        except ValueError as error:
            problem = f"is not a tensor: {error}"
            raise DataError(missing(folder / name, run="python -m opmatrix data", problem=problem)) from error
        # Others' data sets have tensors without a name, or several of one name: their order counts.
        arrays[label if label and label not in arrays else f"#{index}"] = array
    if not arrays:
        raise DataError(missing(folder / name, run="python -m opmatrix data"))
    return arrays


def read_tensor(path: Path) -> tuple[str, Array]:
    """Return the name and the values of a TensorProto. Raises ValueError for anything else."""
    try:
        tensor = onnx.TensorProto.FromString(path.read_bytes())
        return tensor.name, to_array(tensor)
    except (DecodeError, ValueError, TypeError) as error:
        raise ValueError(str(error)) from error


def to_array(tensor: onnx.TensorProto) -> Array:
    """Return the values of a TensorProto. onnx drops the NULs at the end of a string."""
    if tensor.data_type != onnx.TensorProto.STRING:
        return numpy_helper.to_array(tensor)
    found = np.empty(len(tensor.string_data), np.object_)
    found[:] = [text.decode() for text in tensor.string_data]
    return found.reshape(tuple(tensor.dims))


def link(model: Path, data_sets: Sequence[Path]) -> None:
    """Link test_data_set_<N> to the N-th data set of all cells, relatively: folders move. Remove other links."""
    wanted = {d.name: os.path.relpath(d, model) for d in data_sets}
    with os.scandir(model) as entries:
        links = {
            e.name: str(Path(e).readlink()) if e.is_symlink() else "" for e in entries if e.name.startswith(DATA_SET)
        }
    right = {name for name, target in links.items() if wanted.get(name) == target}
    for name in links.keys() - right:
        (model / name).unlink(missing_ok=True)
    for name, target in wanted.items():
        if name not in right:
            with suppress(FileExistsError):  # a concurrent step made the same link
                (model / name).symlink_to(target)
