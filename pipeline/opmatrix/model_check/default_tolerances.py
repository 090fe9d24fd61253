"""How far the numbers of a whole model may be off: by default, for each dtype, or as asked. Imports no framework."""

from __future__ import annotations

from collections.abc import Mapping

from opmatrix.spec import DType, Tolerance

# A whole model adds up the errors of its nodes, so these are wider than those that an operator declares. A share of the
# numbers' own digits: float32 has 7, float64 16, float16 3, bfloat16 2.
DEFAULTS: Mapping[DType, Tolerance] = {
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float64": Tolerance(rtol=1e-9, atol=1e-10),
    "float16": Tolerance(rtol=1e-2, atol=1e-3),
    "bfloat16": Tolerance(rtol=5e-2, atol=1e-2),
}


def tolerances(rtol: float | None, atol: float | None) -> dict[str, Tolerance]:
    """Return the tolerance of each floating dtype; everything else must be equal."""
    return {
        str(dtype): Tolerance(
            rtol=default.rtol if rtol is None else rtol,
            atol=default.atol if atol is None else atol,
        )
        for dtype, default in DEFAULTS.items()
    }
