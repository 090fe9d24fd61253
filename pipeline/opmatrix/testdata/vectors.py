"""Read test vectors that were computed elsewhere: an .npz, or a folder of ONNX test data. Runs nothing of the file."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opmatrix.declaration.model_inputs import GraphInput, graph_inputs
from opmatrix.declaration.torch_signature import FOUR_BITS, dtype_of
from opmatrix.declaration.variadic_outputs import of_model
from opmatrix.errors import DataError, one_line
from opmatrix.spec import Case, DType, FromVectors, Model, OpSpec, Vectors, shape_of
from opmatrix.testdata import onnx_dataset
from opmatrix.testdata.arrays import Array, cast, dtype_name
from opmatrix.testdata.case_arrays import broken_rule, case_array
from opmatrix.testdata.dtypes import SMALL, numpy_dtype
from opmatrix.testdata.numpy_reference import FLOATS


def read_case(spec: OpSpec, model: Model, case: Case, *, folder: Path) -> tuple[list[Array], tuple[Array, ...]]:
    """Return the inputs of a case that has `expected`, one per tensor, and its outputs from elsewhere.

    `folder` is that of the operator. Raises DataError for a file that is missing or damaged, that has pickled objects,
    or that lacks an array of the declared name, shape and dtype.
    """
    assert case.expected
    fed = graph_inputs(spec, model, case)
    taken = [feed for feed in fed if isinstance(feed.tensor, FromVectors)]
    outputs = [(part.name, dtype_of(part.type, model.types)) for part in of_model(spec, model).outputs]
    inputs = [_name(feed) for feed in taken]
    path = folder / case.expected.path
    found = (
        _folder(path, case.expected, inputs, [n for n, _ in outputs]) if path.is_dir() else _npz(path, case.expected)
    )
    arrays = {}
    for feed in taken:
        array = _array(found, _name(feed), dtype_of(feed.part.type, model.types), case.expected, narrow=False)
        if array.shape != (shape := shape_of(feed.tensor)):
            raise DataError(f"{case.expected.path}: {_name(feed)!r} has the shape {array.shape}, the case has {shape}")
        if why := broken_rule(spec, model, case, feed, array):
            raise DataError(f"{case.expected.path}: input {_name(feed)!r} {why}")
        arrays[_name(feed)] = array
    made = [arrays[_name(f)] if f in taken else case_array(spec, model, case, f) for f in fed]
    return made, tuple(_array(found, name, dtype, case.expected, narrow=True) for name, dtype in outputs)


def _name(feed: GraphInput) -> str:
    return f"{feed.part.name}_{feed.index}" if feed.part.variadic else feed.part.name


def _npz(path: Path, vectors: Vectors) -> Mapping[str, Array]:
    if not path.is_file():
        raise DataError(f"{vectors.path} is missing; it is a path below the operator's folder")
    if not zipfile.is_zipfile(path):  # NumPy would take it for a pickle
        raise DataError(f"{vectors.path} is damaged, or no .npz. Take it again from {vectors.source}")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: file[name] for name in file.files}
    except Exception as error:  # what numpy, zipfile and zlib raise for a damaged file is not documented
        if "pickle" in str(error):
            why = "has pickled objects, which could run code. Save plain arrays with numpy.savez"
        else:
            why = f"is damaged: {one_line(error)}. Take it again from {vectors.source}"
        raise DataError(f"{vectors.path} {why}") from error
    return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}


def _folder(path: Path, vectors: Vectors, inputs: Sequence[str], outputs: Sequence[str]) -> Mapping[str, Array]:
    """Return the arrays of ONNX test data: input_0.pb is the first tensor that the case takes from the file."""
    found = {}
    for kind, names in (("input", inputs), ("output", outputs)):
        for index, name in enumerate(names):
            file = path / f"{kind}_{index}.pb"
            try:
                found[name] = onnx_dataset.read_tensor(file)[1]
            except FileNotFoundError as error:
                raise DataError(f"{vectors.path}/{file.name} is missing; it is {kind} {name!r}") from error
            except ValueError as error:
                raise DataError(
                    f"{vectors.path}/{file.name} is not a tensor. Take it again from {vectors.source}"
                ) from error
    return found


def _array(found: Mapping[str, Array], name: str, dtype: DType, vectors: Vectors, *, narrow: bool) -> Array:
    """Return one array in the declared dtype. With `narrow`, one of a wider floating dtype is rounded to it."""
    if name not in found:
        raise DataError(f"{vectors.path} has no array {name!r}, it has: {', '.join(found) or 'none'}")
    array, target = found[name], numpy_dtype(dtype)
    if dtype == "string" and array.dtype.kind == "U":
        return array.astype(object)
    if dtype in (*SMALL, *FOUR_BITS) and array.dtype == np.dtype(f"V{target.itemsize}"):  # as NumPy writes and reads it
        return array.view(target)
    if dtype.startswith("float8") and array.dtype == np.uint8:  # their bits: NumPy reads no float8_e5m2
        return array.view(target)
    if dtype in FOUR_BITS and array.dtype in (np.int8, np.uint8):  # one in a byte
        return cast(array, dtype)
    if array.dtype != target:
        wider = narrow and dtype in FLOATS and array.dtype.kind == "f" and array.dtype.itemsize > target.itemsize
        if not wider:
            raise DataError(f"{vectors.path}: {name!r} is {dtype_name(array)}, declared: {dtype}")
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(array.astype(target)).reshape(array.shape)
