"""Drawn cases with the reference's outputs: written by draw-inputs, read by the property test and ort-fuzz.

The file is one line of JSON, and after it the bytes of all arrays in the same order. Reading it runs no code from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.declaration.model_inputs import case_arguments
from opmatrix.errors import DataError, missing
from opmatrix.files import write_bytes
from opmatrix.spec import Case, DType, Model, OpSpec, Random, Values
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.case_arrays import case_arrays, reference_attributes
from opmatrix.testdata.dtypes import numpy_dtype
from opmatrix.testdata.numpy_reference import Reference

# What a drawn model consists of; no other class can be in a file.
_CLASSES = {made.__name__: made for made in (Model, Case, Random, Values)}
_NESTED = (list, dict)


@dataclass(frozen=True, kw_only=True)
class DrawnCase:
    """A model with one case, its input arrays, and the expected outputs, or why the reference raises."""

    model: Model
    arrays: list[Array]
    expected: tuple[Array, ...] | None
    refusal: str


def evaluate(spec: OpSpec, model: Model, reference: Reference) -> DrawnCase:
    """Run the reference on a drawn model's case."""
    arrays = case_arrays(spec, model, model.cases[0])
    expected, refusal = reference_outputs(spec, model, reference, arrays)
    return DrawnCase(model=model, arrays=arrays, expected=expected, refusal=refusal)


def reference_outputs(
    spec: OpSpec, model: Model, reference: Reference, arrays: Sequence[Array]
) -> tuple[tuple[Array, ...] | None, str]:
    """Return the outputs of the reference and "", or None and its error."""
    try:
        return reference(tuple(case_arguments(spec, model.cases[0], arrays)), reference_attributes(spec, model)), ""
    except DataError as error:
        return None, str(error)


def write(path: Path, found: Sequence[DrawnCase]) -> None:
    """Write the cases; equal ones give equal bytes."""
    arrays: list[bytes] = []
    cases = [
        {
            "model": _as_json(one.model),
            "arrays": [_described(array, arrays) for array in one.arrays],
            "expected": None if one.expected is None else [_described(array, arrays) for array in one.expected],
            "refusal": one.refusal,
        }
        for one in found
    ]
    write_bytes(path, b"".join([json.dumps(cases, separators=(",", ":")).encode(), b"\n", *arrays]))


def read(path: Path, operator: str) -> list[DrawnCase]:
    """Read a file of `write`. Raises DataError if it is missing, damaged or of another program."""
    try:
        return [*_parsed(path.read_bytes())]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, MemoryError) as error:
        run = f"python -m opmatrix draw-inputs {operator}"
        raise DataError(missing(path, run=run, problem="is missing or damaged")) from error


def _parsed(content: bytes) -> Iterator[DrawnCase]:
    at = content.index(b"\n") + 1

    def array(dtype: DType, shape: list[int], strings: list[str] | None = None) -> Array:
        nonlocal at
        if strings is not None:
            texts = np.empty(len(strings), numpy_dtype("string"))
            texts[:] = strings
            return texts.reshape(shape)
        values = np.frombuffer(content, numpy_dtype(dtype), math.prod(shape), at)
        at += values.nbytes
        return values.reshape(shape).copy()  # aligned, and not read-only

    for one in json.loads(content[:at]):
        arrays = [array(*described) for described in one["arrays"]]
        expected = None if one["expected"] is None else tuple(array(*described) for described in one["expected"])
        yield DrawnCase(model=_from_json(one["model"]), arrays=arrays, expected=expected, refusal=one["refusal"])
    if at != len(content):
        raise ValueError(f"{len(content)} bytes, and its first line describes {at}")


def _described(array: Array, into: list[bytes]) -> list[Any]:
    """Return dtype and shape of an array, with the values of one of strings; append the bytes of any other."""
    if array.dtype == np.object_:
        return [dtype_name(array), array.shape, array.ravel().tolist()]
    into.append(array.tobytes())
    return [dtype_name(array), array.shape]


def _as_json(value: Any) -> Any:
    """Return a drawn model, or a part of it, as JSON data: a tuple is a list, a mapping ``{"": its items}``, any other
    object ``{its class: its fields that have no default}``."""
    if isinstance(value, tuple | list):
        return [*map(_as_json, value)]
    if isinstance(value, Mapping):
        return {"": [[key, _as_json(item)] for key, item in value.items()]}
    if (kind := type(value).__name__) in _CLASSES:
        given = {f.name: getattr(value, f.name) for f in fields(value) if getattr(value, f.name) != f.default}
        return {kind: {name: _as_json(item) for name, item in given.items()}}
    return value


def _from_json(data: Any) -> Any:
    if isinstance(data, list):
        return tuple([_from_json(item) if isinstance(item, _NESTED) else item for item in data])
    ((kind, items),) = data.items()
    pairs = items.items() if kind else items
    found = {name: _from_json(item) if isinstance(item, _NESTED) else item for name, item in pairs}
    # Without the constructor, which in a declaration also looks for mistakes.
    return type.__call__(_CLASSES[kind], **found) if kind else found
