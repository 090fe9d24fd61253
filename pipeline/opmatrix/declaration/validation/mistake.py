"""One mistake in a declaration or a case."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.errors import did_you_mean

_COMPLEX = (
    "which no ONNX Runtime from 1.16 to 1.31 takes in a custom op. Declare {} with a last axis of 2, as "
    "torch.view_as_real gives it"
)
WHY_NO_DTYPE: Mapping[str, str] = {
    "complex64": _COMPLEX.format("float32"),
    "complex128": _COMPLEX.format("float64"),
}
"""Why no declaration has a dtype that torch and ONNX have, and what to declare instead; docs/reference/dtypes.md."""


@dataclass(frozen=True)
class Mistake:
    """One mistake: where (a field path such as ``inputs[0].type``) and what is wrong with it. `usable`: the other
    fields have values, so that they can be checked too."""

    field: str
    text: str
    usable: bool = False


def not_one_of(field: str, found: object, allowed: Iterable[object]) -> Mistake:
    names = [str(a) for a in allowed]
    if "float32" in names and found in WHY_NO_DTYPE:
        return Mistake(field, f"found {found!r}, {WHY_NO_DTYPE[str(found)]}")
    return Mistake(field, f"found {found!r}, allowed: {', '.join(names)}{did_you_mean(str(found), names)}")


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted({n for n in names if names.count(n) > 1})
