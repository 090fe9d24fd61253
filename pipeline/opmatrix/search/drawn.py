"""Drawn cases with the reference's outputs: written by draw-inputs, read by the property test and ort-fuzz.

The file is one line of JSON, and after it the bytes of all arrays in the same order. Reading it runs no code from it.
Of a large input drawn at random it has the seed alone. An input on which a kernel fails has a file of its own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.basics.errors import DataError, missing, one_line
from opmatrix.basics.files import write_bytes, write_text
from opmatrix.data import arrays, truth
from opmatrix.data.arrays import Array, dtype_name, numpy_dtype
from opmatrix.data.case_arrays import case_arrays, reference_attributes
from opmatrix.data.reference import Precision, Reference
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments
from opmatrix.project.paths import Paths
from opmatrix.signature.python_source import source
from opmatrix.spec import Case, DType, Model, OpSpec, Random, Tensor, Values, tensors_of

# What a drawn model consists of; no other class can be in a file.
_CLASSES = {made.__name__: made for made in (Model, Case, Random, Values)}
_NESTED = (list, dict)
_SEEDED = 8192  # elements from which on a random array is drawn again


@dataclass(frozen=True, kw_only=True)
class DrawnCase:
    """A model with one case, its input arrays, and the expected outputs, or why the reference raises. `precision` is
    that in which the reference was evaluated."""

    model: Model
    arrays: list[Array]
    expected: tuple[Array, ...] | None
    refusal: str
    large: bool = False
    precision: Precision = "declared dtype"

    def __str__(self) -> str:
        """Return the case's name, its dtypes and shapes, and its attributes, for the log of a step."""
        shown = ", ".join(f"{dtype_name(a)} {a.shape}" for a in self.arrays)
        attributes = f"; {dict(self.model.attributes)}" if self.model.attributes else ""
        return f"case {self.model.name} ({shown}{attributes})"


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The cases of one file, why others were dropped, by the reason, and the models for which the reference was too
    slow."""

    cases: list[DrawnCase]
    dropped: Mapping[str, int]
    too_slow: Sequence[Model] = ()


def evaluate(spec: OpSpec, model: Model, reference: Reference) -> DrawnCase:
    """Run the reference on a drawn model's case. Raises MemoryError where the reference does: that refuses nothing."""
    made = case_arrays(spec, model, model.cases[0])
    given = tuple(case_arguments(spec, model.cases[0], made))
    try:
        found = truth.evaluate(reference, spec, model.types, given, reference_attributes(spec, model))
    except DataError as error:
        if isinstance(error.__cause__, MemoryError):
            raise error.__cause__ from error
        return DrawnCase(model=model, arrays=made, expected=None, refusal=str(error))
    return DrawnCase(model=model, arrays=made, expected=found.outputs, refusal="", precision=found.judge.precision)


def reference_outputs(
    spec: OpSpec,
    model: Model,
    reference: Reference,
    arrays: Sequence[Array],
    *,
    precision: Precision = "declared dtype",
) -> tuple[tuple[Array, ...] | None, str]:
    """Return the outputs of the reference for a model's first case with these inputs and "", or None and its error."""
    given = tuple(case_arguments(spec, model.cases[0], arrays))
    try:
        return reference(given, reference_attributes(spec, model), precision=precision), ""
    except DataError as error:
        return None, str(error)


def write(
    path: Path,
    evaluated: Sequence[DrawnCase],
    *,
    operator: str = "",
    ruled: Collection[str] = (),
    dropped: Mapping[str, int] | None = None,
    too_slow: Sequence[Model] = (),
) -> None:
    """Write the cases; equal ones give equal bytes. `operator` seeds large arrays, which are not written, except those
    of the inputs in `ruled`, whose values follow from a rule."""
    content: list[bytes] = []
    cases = [
        {
            "model": _as_json(one.model),
            "arrays": [*_inputs(one, operator, ruled, content)],
            "expected": None if one.expected is None else [_described(array, content) for array in one.expected],
            "refusal": one.refusal,
            "large": one.large,
            "precision": one.precision,
        }
        for one in evaluated
    ]
    head = {"dropped": dict(dropped or {}), "too_slow": [*map(_as_json, too_slow)], "cases": cases}
    write_bytes(path, b"".join([json.dumps(head, separators=(",", ":")).encode(), b"\n", *content]))


def read(path: Path, operator: str) -> list[DrawnCase]:
    """Read the cases in a file of `write`. Raises DataError as `read_all`."""
    return read_all(path, operator).cases


def read_all(path: Path, operator: str) -> Drawn:
    """Read a file of `write`. Raises DataError if it is missing, damaged or of another program."""
    try:
        return _parsed(path.read_bytes())
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, MemoryError) as error:
        run = f"python -m opmatrix draw-inputs {operator}"
        raise DataError(missing(path, run=run, problem="is missing or damaged")) from error


def _parsed(content: bytes) -> Drawn:
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

    def given_array(described: list[Any], tensor: Tensor) -> Array:
        if len(described) < 4:
            return array(*described)
        dtype, shape, _, seed = described
        if not isinstance(tensor, Random) or [*tensor.shape] != shape:
            raise ValueError("a seed is of no random array")
        return arrays.array(tensor, dtype, seed_of=seed)

    head = json.loads(content[:at])
    cases = []
    for one in head["cases"]:
        model = _from_json(one["model"])
        tensors = (tensor for _, _, tensor in _tensors(model))
        made = [given_array(*both) for both in zip(one["arrays"], tensors, strict=True)]
        expected = None if one["expected"] is None else tuple(array(*described) for described in one["expected"])
        known = {name: one[name] for name in ("refusal", "large", "precision")}
        cases.append(DrawnCase(model=model, arrays=made, expected=expected, **known))
    if at != len(content):
        raise ValueError(f"{len(content)} bytes, and its first line describes {at}")
    dropped = {str(why): int(count) for why, count in head["dropped"].items()}
    return Drawn(cases=cases, dropped=dropped, too_slow=[*map(_from_json, head["too_slow"])])


def _tensors(model: Model) -> Iterator[tuple[str, str, Tensor]]:
    """Yield the tensors of a drawn model in the order of `case_arrays`, each with its input, since the case names these
    as they are declared, and with the name that seeds it."""
    (case,) = model.cases
    for name, tensors in case.inputs.items():
        for index, tensor in enumerate(tensors_of(case, name)):
            yield name, f"{name}_{index}" if isinstance(tensors, tuple) else name, tensor


def _inputs(one: DrawnCase, operator: str, ruled: Collection[str], into: list[bytes]) -> Iterator[list[Any]]:
    if not one.large or not operator:
        yield from (_described(array, into) for array in one.arrays)
        return
    for array, (part, name, tensor) in zip(one.arrays, _tensors(one.model), strict=True):
        if isinstance(tensor, Random) and array.size >= _SEEDED and part not in ruled:
            seed = arrays.seed_of(operator, one.model.cases[0].name, name)
            yield [dtype_name(array), array.shape, None, seed]
        else:
            yield _described(array, into)


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


def keep(paths: Paths, operator: Operator, failing: DrawnCase, problem: str, *, where: str, which: str) -> str:
    """Write a failing case to files, for adopt-case and for `stored`; return the message."""
    model = failing.model
    parts = (model.types, model.attributes, model.cases[0].inputs)  # values, or how they are drawn
    described = " ".join(source(dict(part), width=120) for part in parts if part)
    write_text(paths.failing_case(operator.name, model.name), f"{one_line(problem)}\n{source(model)}\n")
    write(_file(paths, operator, model.name), [failing], operator=operator.name)
    return (
        f"{operator.name}-{model.name} in {where}: {problem}. {which}: {described}. "
        f"Keep it as a case with: python -m opmatrix adopt-case {operator.name} {model.name}"
    )


def stored(paths: Paths, operator: Operator, case: str) -> DrawnCase | None:
    """Return the drawn case with this name, or the one that `keep` wrote, or None."""
    kept = _file(paths, operator, case)
    path = kept if kept.exists() else paths.drawn_inputs(operator.name)
    return next((one for one in read(path, operator.name) if one.model.name == case), None)


def _file(paths: Paths, operator: Operator, case: str) -> Path:
    return paths.failing_case(operator.name, case).with_suffix(".cases")
