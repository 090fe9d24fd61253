"""The truth that judges kernel and model: the reference, evaluated in a higher precision where that is possible.

A reference may lose digits in the dtype of its inputs, and then it would call a more exact kernel wrong. So its
floating inputs are widened to float64 (those of float64 operators to longdouble, where the reference keeps it), and its
outputs are rounded to the declared dtypes. Where outputs jump, they are evaluated in the declared dtype: an index or a
rounding that float64 decides otherwise is no more right.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opmatrix.basics.errors import DataError, missing
from opmatrix.data.arrays import Array, dtype_name, flat, parts, slices
from opmatrix.data.compare import compare
from opmatrix.data.reference import Argument, Precision, Reference, widened
from opmatrix.project.dtypes import FLOATS
from opmatrix.signature.signature import dtype_of
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import AttributeValue, DType, OpSpec, Tolerance


@dataclass(frozen=True, kw_only=True)
class Judge:
    """The precision in which truth is evaluated. `reason`: why it is the declared dtype, or, found with a wider one,
    what differs there; "" where nothing is worth a word."""

    precision: Precision
    reason: str = ""

    def __str__(self) -> str:
        """Return ``float64``, or ``declared dtype: why``."""
        return f"{self.precision}: {self.reason}" if self.reason else self.precision


DECLARED = Judge(precision="declared dtype")


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The outputs of a reference in their declared dtypes, and the precision in which they were evaluated."""

    outputs: tuple[Array, ...]
    judge: Judge


def read_judges(manifest: Path) -> dict[Path, Judge]:
    """Return what judged each data set of an operator, by its folder: the record of the stage `data`.

    Raises DataError where that is missing or damaged.
    """
    try:
        judged_in = json.loads(manifest.read_text(encoding="utf-8"))["judged_in"]
        return {manifest.parent / folder: Judge(**judge) for folder, judge in judged_in.items()}
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        problem = "is missing or damaged"
        raise DataError(missing(manifest, run="python -m opmatrix data", problem=problem)) from error


def read_reference(manifest: Path) -> str:
    """Return what the reference of an operator is written in, ``numpy`` or ``torch 2.13.0``; "" without the record."""
    try:
        return str(json.loads(manifest.read_text(encoding="utf-8")).get("reference", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def declared_judge(spec: OpSpec, types: Mapping[str, DType]) -> Judge:
    """Return the precision that the declaration allows; `types` binds its type variables.

    "longdouble" is only tried: `evaluate` returns to float64 where the reference does not keep it. torch has none.
    """
    inputs = {dtype_of(part.type, types) for part in spec.inputs}.intersection(FLOATS)
    if not inputs:
        return DECLARED
    if spec.discontinuous:
        return Judge(precision="declared dtype", reason=f"declared discontinuous: {spec.discontinuous}")
    for part in spec.outputs:
        if (dtype := dtype_of(part.type, types)) not in FLOATS:
            return Judge(precision="declared dtype", reason=f"output {part.name!r} is {dtype}, which jumps")
    return Judge(precision="longdouble" if "float64" in inputs and spec.reference == "numpy" else "float64")


def evaluate(
    reference: Reference,
    spec: OpSpec,
    types: Mapping[str, DType],
    inputs: Sequence[Argument],
    attributes: Mapping[str, AttributeValue],
) -> Truth:
    """Evaluate a reference in the declared dtype, then in the wider precision that the declaration allows.

    The wider one counts where the reference keeps it, and where both agree in half of the declared dtype's digits. A
    larger difference is no rounding: an undeclared jump, a value beyond the declared dtype's range, or a reference that
    asks for the dtype. Raises DataError where the reference raises in the declared dtype.
    """
    plain = reference(inputs, attributes)
    judge = declared_judge(spec, types)
    if judge.precision == "declared dtype":
        return Truth(outputs=plain, judge=judge)
    try:
        with np.errstate(all="ignore"):
            raw = reference.raw(widened(inputs, judge.precision), attributes)
        outputs = reference.rounded(raw, inputs)
        why = next(_differences(spec, raw, outputs, plain, judge.precision), "")
    except DataError as error:  # such as numpy.linalg, which has no longdouble
        why = f"in {judge.precision} it raises: {error}"
    if why and judge.precision == "longdouble":  # that a float64 operator is judged in float64 needs no reason
        return Truth(outputs=plain, judge=Judge(precision="float64"))
    if why:
        return Truth(outputs=plain, judge=Judge(precision="declared dtype", reason=why))
    if judge.precision == "longdouble" and not any(map(_is_longer, raw)):
        judge = Judge(precision="float64")  # it computes in float64 and returns the dtype of its input
    for three in zip(raw, outputs, plain, strict=True):
        _round_once(*three)
    return Truth(outputs=outputs, judge=judge)


def _round_once(raw: Array, rounded: Array, plain: Array) -> None:
    """Replace the rounded outputs by the plain ones where these are as near to the wide value: a sum in longdouble is
    rounded twice until it is float64, and then another neighbour than the right one may come out."""
    wide, right, once = flat(raw), flat(rounded), flat(plain)
    for block in slices(raw.size):
        exact, made, other = wide[block], right[block], once[block]
        with np.errstate(all="ignore"):
            half = np.spacing(np.abs(made)).astype(raw.dtype) / 2 + np.spacing(np.abs(exact))
            nearest = np.abs(other.astype(raw.dtype) - exact) <= half
        right[block] = np.where(nearest, other, made)


def _differences(
    spec: OpSpec, raw: Sequence[Array], rounded: Sequence[Array], plain: Sequence[Array], precision: Precision
) -> Iterator[str]:
    """Yield the outputs that a reference gives in less than `precision`, and those that differ by more than half of the
    digits of the declared dtype."""
    declared, wanted = with_outputs(spec, len(plain)).outputs, np.dtype(precision).itemsize
    for part, output in zip(declared, raw, strict=True):
        if output.dtype.kind != "f" or output.dtype.itemsize < wanted:
            yield f"in {precision} it gives {part.name!r} as {dtype_name(output)}"
    for part, expected, actual in zip(declared, rounded, plain, strict=True):
        largest = max(map(_largest, parts(expected)), default=0.0)
        half = math.sqrt(float(np.spacing(np.ones((), expected.dtype))))
        found = compare(actual, expected, tolerance=Tolerance(rtol=half, atol=half * largest))
        if found.problem:
            yield f"in {precision} output {part.name!r} has the shape {expected.shape}, not {actual.shape}"
        elif not found.ok:
            yield (
                f"in {precision} output {part.name!r} differs by more than rounding: at {found.worst} it is "
                f"{found.expected}, not {found.actual}. If it jumps there, write `discontinuous` in spec.py; if not, "
                "let reference.py compute in float64"
            )


def _largest(array: Array) -> float:
    size = np.abs(array.astype(np.float64))
    return float(np.max(size, initial=0.0, where=np.isfinite(size)))


def _is_longer(array: Array) -> bool:
    """Return whether a value needs more digits than float64 has."""
    with np.errstate(all="ignore"):
        return any(((part.astype(np.float64) != part) & np.isfinite(part)).any() for part in parts(array))
