"""Read inputs and expected outputs that somebody wrote: a .npz file, or a folder of ONNX's backend tests. No runtime.

Format of the folder: input_<i>.pb and output_<i>.pb, each a TensorProto, a SequenceProto or an OptionalProto, as the
type of the model's input or output says: https://github.com/onnx/onnx/blob/main/docs/OnnxBackendTest.md
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import MapProto, OptionalProto, SequenceProto, TensorProto, TypeProto, ValueInfoProto, numpy_helper

from opmatrix.errors import UsageError
from opmatrix.project.paths import DATA_SET
from opmatrix.testdata.onnx_dataset import to_array

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


def folders(path: Path) -> list[Path]:
    """Return the data sets in a folder, in order: its own .pb files, or test_data_set_0, test_data_set_1 and so on."""
    if any((path / f"{kind}_0.pb").is_file() for kind in ("input", "output")):
        return [path]
    found = [p for p in path.glob(f"{DATA_SET}*") if p.is_dir() and p.name.removeprefix(DATA_SET).isdigit()]
    return sorted(found, key=lambda p: int(p.name.removeprefix(DATA_SET)))


def read_folder(folder: Path, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto]) -> list[Values]:
    """Return the inputs and the outputs of a data set by their names in the model. Raises UsageError.

    Where the files do not name the model's inputs or outputs, their order counts.
    """
    found = []
    for kind, infos in (("input", inputs), ("output", outputs)):
        values = list(_read(folder, kind, [i.type for i in infos]))
        names = [name for name, _ in values]
        by_name = len({*names}) == len(names) and {*names} <= {i.name for i in infos}
        order = names if by_name else [i.name for i in infos]
        found.append({name: value for name, (_, value) in zip(order, values, strict=False)})
    return found


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
        return optional.name, _optional(optional)
    if declared.HasField("map_type"):
        pairs = MapProto.FromString(content)
        return pairs.name, numpy_helper.to_dict(pairs)
    tensor = TensorProto.FromString(content)
    return tensor.name, to_array(tensor)


def _list(sequence: SequenceProto) -> list[Any]:
    if sequence.elem_type == SequenceProto.TENSOR:
        return [to_array(tensor) for tensor in sequence.tensor_values]
    return numpy_helper.to_list(sequence)


def _optional(optional: OptionalProto) -> Any:
    if optional.HasField("sequence_value"):
        return _list(optional.sequence_value)
    return to_array(optional.tensor_value) if optional.HasField("tensor_value") else None
