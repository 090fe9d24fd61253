"""The values of a model that are in other files: what is wrong with the files, and reading them. Imports onnx alone.

onnx reads no file through a link or a path with "..". ONNX Runtime does where the file is within the model's folder, as
in caches of downloaded models.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx
from onnx import ModelProto, TensorProto, helper

from opmatrix.errors import VerifyError
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import tensors


def text_findings(model: ModelProto) -> Iterator[Finding]:
    """Yield the first constant with a string that is not UTF-8."""
    if found := next((tensor for tensor in tensors(model) if not is_readable(tensor)), None):
        text = f"the constant {found.name!r} has a string that is not UTF-8, which ONNX demands: "
        yield finding.note("nodes", text + repr(b" ".join(found.string_data)[:40]))


def external_data_findings(model: ModelProto, path: Path) -> Iterator[Finding]:
    """Yield the first file of external data that cannot be read, and why."""
    for tensor in tensors(model):
        if is_external(tensor) and (fault := _fault(tensor, path)):
            text, remedy = fault
            yield finding.wrong("nodes", f"the values of {tensor.name!r} {text}", remedy)
            return


def is_external(tensor: TensorProto) -> bool:
    """Return whether the values of a tensor are in another file, which a model may be read without."""
    return bool(tensor.data_location == TensorProto.EXTERNAL)


def is_readable(tensor: TensorProto) -> bool:
    """Return whether all strings of a tensor are UTF-8, which ONNX demands and ONNX Runtime does not."""
    try:
        return all(text.decode() is not None for text in tensor.string_data)
    except UnicodeDecodeError:
        return False


def load(path: Path) -> ModelProto:
    """Return a model with the values that are in other files. Raises VerifyError where one cannot be read."""
    model = onnx.load_model(path, load_external_data=False)
    for tensor in filter(is_external, tensors(model)):
        if fault := _fault(tensor, path):
            raise VerifyError(f"the values of {tensor.name!r} {fault[0]}")
        file, offset, length = _place(tensor, path)
        with file.open("rb") as opened:
            opened.seek(offset)
            tensor.raw_data = opened.read(length)
        tensor.data_location = TensorProto.DEFAULT
        del tensor.external_data[:]
    return model


def _fault(tensor: TensorProto, path: Path) -> tuple[str, str] | None:
    """Return what is wrong with the place of a tensor's values, and the remedy."""
    place = _entries(tensor).get("location", "")
    if not os.path.isfile(path.parent / place):  # noqa: PTH113 - Path.is_file raises for a long name
        return (
            f"are in {place!r}, which is not next to the model",
            "Copy it along with the model, or save the model with its data within",
        )
    file, folders = (path.parent / place).resolve(), (path.parent.resolve(), path.resolve().parent)
    if Path(place).is_absolute() or not any(file.is_relative_to(folder) for folder in folders):
        return (
            f"are in {place!r}, outside the folder of the model, where ONNX allows none",
            "Copy the file next to the model, and give its name as the location: onnx.save(..., location=NAME)",
        )
    try:
        file, offset, length = _place(tensor, path)
    except ValueError:
        return "have an offset or a length that is no number", "Save the model with its data again"
    if offset < 0 or length < 0 or offset + length > (size := file.stat().st_size):
        return (
            f"are the bytes {offset} to {offset + length} of {place!r}, which has {size}",
            "The file is cut, or of another model: copy it again",
        )
    return None


def _place(tensor: TensorProto, path: Path) -> tuple[Path, int, int]:
    """Return the file, the first byte, and the number of bytes: up to the end if there is none."""
    entries = _entries(tensor)
    file, offset = path.parent / entries.get("location", ""), int(entries.get("offset") or 0)
    return file, offset, int(entries.get("length") or _bytes(tensor) or max(file.stat().st_size - offset, 0))


def _bytes(tensor: TensorProto) -> int:
    """Return how many bytes the values of a tensor take; 0 for dtypes that share bytes, and unknown ones."""
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except (KeyError, ValueError):
        return 0
    shared = re.search(r"INT[24]$|FLOAT4", TensorProto.DataType.Name(tensor.data_type))
    return 0 if shared else math.prod(tensor.dims) * dtype.itemsize


def _entries(tensor: TensorProto) -> Mapping[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}
