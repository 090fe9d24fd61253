"""What `hollow_proof` finds, and the words of its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from opmatrix.spec import Attribute, Input, Output, Tolerance
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import is_float
from opmatrix.testdata.evaluated_cases import EvaluatedCase

Cases = Sequence[EvaluatedCase]

SMALL = 20_000
"""Elements of the inputs of a case that is always read; larger ones are read only where no smaller one is enough."""
_LIFTED = 4  # cases in which something with `no_effect` is evaluated


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A wrong kernel that passes: `what` is the same for each dtype, `why` its details. `part` is what `no_effect` can
    be declared for; None: it is an error in any case."""

    what: str
    why: str
    part: Input | Attribute | Output | None = None


def tried_with(part: Input | Attribute, cases: Cases) -> Cases:
    """Return the cases in which a replacement is evaluated."""
    return cases[:_LIFTED] if part.no_effect else cases


def remedy(part: Input | Attribute | Output, add: str) -> str:
    tighten = "" if add.startswith("Add a model") else ", tighten the tolerance"
    return f'{add}{tighten}, or declare {type(part).__name__}(name={part.name!r}, ..., no_effect="why")'


def limits(cases: Cases) -> str:
    """Return the tolerances of all outputs of cases."""
    return shown_tolerances(*(one.tolerances[dtype_name(array)] for one in cases for array in one.right))


def shown_tolerances(*tolerances: Tolerance) -> str:
    return " and ".join(dict.fromkeys(f"rtol={one.rtol:g} atol={one.atol:g}" for one in tolerances))


def known(array: Array) -> Array:
    """Return where an array is not NaN."""
    where: Array = ~np.isnan(array) if is_float(array.dtype) else np.ones(array.shape, bool)
    return where


def numbers_in(array: Array) -> Array:
    """Return where an array is neither NaN nor 0, and a string not empty."""
    where: Array = known(array) & (array != ("" if array.dtype == np.object_ else 0))
    return where
