"""Write, read and link data sets of ONNX's backend tests: input_<i>.pb and output_<i>.pb, each a TensorProto.

Format: https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
"""

from __future__ import annotations

import math
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import numpy_helper

from opmatrix.basics.errors import DataError, missing
from opmatrix.basics.files import write_parts
from opmatrix.data.arrays import Array, dtype_name, raw_bytes
from opmatrix.data.truth import DECLARED, Judge
from opmatrix.project.dtypes import FOUR_BITS
from opmatrix.project.paths import DATA_SET

LARGE = 1 << 22  # bytes of a file from which on protobuf does not touch its values, and it is read where it is used
MOST_BYTES = (1 << 31) - 1  # of a message of protobuf
_RAW = 0x4A  # the tag of raw_data: field 9, with a length
_HEAD = 1 << 16  # bytes of the other fields, at most


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """Inputs and expected outputs of one case by their names in the graph, in the order of the declaration.

    `vectors`: its outputs from elsewhere, if it has them. `judge`: the precision in which the reference was evaluated,
    which is in the manifest of the data.
    """

    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    vectors: Mapping[str, Array] = field(default_factory=dict)
    judge: Judge = DECLARED

    @property
    def large(self) -> bool:
        """Whether a tensor is so large that it is read where it is used."""
        return any(isinstance(one, _Stored) and one.large for one in (self.inputs, self.outputs, self.vectors))


def write(folder: Path, data: DataSet) -> None:
    """Write `data`, with equal bytes for equal values, and remove other .pb files."""
    written = set()
    for kind, arrays in (("input", data.inputs), ("output", data.outputs), ("vectors", data.vectors)):
        for index, (name, array) in enumerate(arrays.items()):
            path = folder / f"{kind}_{index}.pb"
            write_parts(path, [*_contents(name, array)])
            written.add(path)
    for path in set(folder.glob("*.pb")) - written:
        path.unlink()


def too_large(size: int) -> str:
    """Return why a tensor of so many bytes is in no data set, or ""."""
    if size + _HEAD <= MOST_BYTES:
        return ""
    return f"has {size / 1e9:.1f} GB; protobuf limits a tensor of test data to 2 GB. Give the case smaller sizes"


def _contents(name: str, array: Array) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a TensorProto. Those of a large one have its values in place: protobuf would make two copies
    of them."""
    if array.nbytes < LARGE or array.dtype == np.object_ or dtype_name(array) in FOUR_BITS:
        yield numpy_helper.from_array(array, name).SerializeToString(deterministic=True)
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    head = numpy_helper.from_array(flat[:0], name)
    head.ClearField("raw_data")  # which is the last field that has a value
    head.dims[:] = array.shape
    # The tag and the length: https://protobuf.dev/programming-guides/encoding.
    tag, number = bytearray([_RAW]), flat.nbytes
    while number > 127:
        tag.append(number & 127 | 128)
        number >>= 7
    yield head.SerializeToString(deterministic=True) + bytes([*tag, number])
    yield raw_bytes(flat)


def read(folder: Path, *, has_inputs: bool = True, judge: Judge | None = None) -> DataSet:
    """Read what `write` wrote, of a model that has inputs or none. Raises DataError for a missing or damaged file."""
    files = {p.name for p in folder.iterdir()} if folder.is_dir() else set()
    inputs = _read(folder, "input", files) if has_inputs else {}
    vectors = _read(folder, "vectors", files) if "vectors_0.pb" in files else {}
    outputs = _read(folder, "output", files)
    return DataSet(inputs=inputs, outputs=outputs, vectors=vectors, judge=judge or DECLARED)


class _Stored(Mapping[str, Array]):
    """Tensors by their names. A large one is read each time, so that it takes memory only where it is used."""

    def __init__(self, tensors: Mapping[str, Array | _Place]) -> None:
        self._tensors = tensors
        self.large = any(isinstance(tensor, _Place) for tensor in tensors.values())

    def __getitem__(self, name: str) -> Array:
        tensor = self._tensors[name]
        return tensor.read() if isinstance(tensor, _Place) else tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def _read(folder: Path, kind: str, files: Container[str]) -> Mapping[str, Array]:
    tensors: dict[str, Array | _Place] = {}
    for index in count():
        if (name := f"{kind}_{index}.pb") not in files:
            break
        try:
            label, tensor = _tensor(folder / name)
        except ValueError as error:
            problem = f"is not a tensor: {error}"
            raise DataError(missing(folder / name, run="python -m opmatrix data", problem=problem)) from error
        # Others' data sets have tensors without a name, or several of one name: their order counts.
        tensors[label if label and label not in tensors else f"#{index}"] = tensor
    if not tensors:
        raise DataError(missing(folder / name, run="python -m opmatrix data"))
    return _Stored(tensors)


def read_tensor(path: Path) -> tuple[str, Array]:
    """Return the name and the values of a TensorProto. Raises ValueError for anything else."""
    name, found = _tensor(path)
    return name, found.read() if isinstance(found, _Place) else found


def _tensor(path: Path) -> tuple[str, Array | _Place]:
    """Return the name and the values of a TensorProto, or where those of a large one are."""
    try:
        if path.stat().st_size >= LARGE and (found := _place(path)):
            return found.name, found
        tensor = onnx.TensorProto.FromString(path.read_bytes())
        return tensor.name, to_array(tensor)
    except (DecodeError, ValueError, TypeError) as error:
        raise ValueError(str(error)) from error


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A tensor in a file whose values are plain bytes there, from `begin` on."""

    path: Path
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int

    def read(self) -> Array:
        size = math.prod(self.shape) * self.dtype.itemsize
        raw = np.fromfile(self.path, np.uint8, size, offset=self.begin)
        if raw.size != size:
            raise ValueError("it is shorter than its tensor")
        return raw.view(self.dtype).reshape(self.shape)


def _place(path: Path) -> _Place | None:
    """Find the values of a tensor in its file, which protobuf would read whole; None where they are not plain bytes, as
    those of strings are not. Raises ValueError for a file that is damaged."""
    others, begin, count = b"", 0, 0
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        while (at := file.tell()) < size:
            tag = _read_varint(file)
            kind = tag & 7  # a number, 8 bytes, several bytes or 4 bytes
            if kind not in (0, 1, 2, 5):
                raise ValueError(f"an unknown kind of field at byte {at}")
            number = _read_varint(file) if kind in (0, 2) else 0
            length = {0: 0, 1: 8, 2: number, 5: 4}[kind]
            end = file.tell() + length
            if tag == _RAW:
                begin, count = file.tell(), length
            elif length > _HEAD:
                return None
            else:
                file.seek(at)
                others += file.read(end - at)
            file.seek(end)
    tensor = onnx.TensorProto.FromString(others)
    shape = tuple(tensor.dims)
    tensor.dims[:], tensor.raw_data = [0], b""
    dtype = numpy_helper.to_array(tensor).dtype if begin else np.dtype(np.object_)
    plain = dtype != np.object_ and str(dtype) not in FOUR_BITS
    if not plain or math.prod(shape) * dtype.itemsize != count:
        return None
    if begin + count > size:
        raise ValueError("it is shorter than its tensor")
    return _Place(path=path, name=tensor.name, dtype=dtype, shape=shape, begin=begin)


def _read_varint(file: IO[bytes]) -> int:
    number = 0
    for place in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            break
        number |= (byte[0] & 127) << place
        if byte[0] < 128:
            return number
    raise ValueError("a number does not end")


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
        links = [Path(entry) for entry in entries if entry.name.startswith(DATA_SET)]
    for link in links:
        if link.is_symlink() and str(link.readlink()) == wanted.get(link.name):
            del wanted[link.name]
        else:
            link.unlink(missing_ok=True)
    for name, target in wanted.items():
        with suppress(FileExistsError):  # a concurrent step made the same link
            (model / name).symlink_to(target)
