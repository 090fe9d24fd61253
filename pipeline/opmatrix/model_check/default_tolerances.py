"""The tolerances of a whole model in `doit check`: a default per dtype, or --rtol and --atol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opmatrix.spec import DType, Tolerance

# The errors of all nodes add up, so these are wider than an operator's tolerances. They follow the decimal digits of
# the dtype: float32 has 7, float64 16, float16 3, bfloat16 2.
DEFAULTS: Mapping[DType, Tolerance] = {
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float64": Tolerance(rtol=1e-9, atol=1e-10),
    "float16": Tolerance(rtol=1e-2, atol=1e-3),
    "bfloat16": Tolerance(rtol=5e-2, atol=1e-2),
    "float8_e4m3fn": Tolerance(rtol=0.25, atol=0.05),
    "float8_e5m2": Tolerance(rtol=0.5, atol=0.05),
    "float8_e4m3fnuz": Tolerance(rtol=0.25, atol=0.05),
    "float8_e5m2fnuz": Tolerance(rtol=0.5, atol=0.05),
}


def tolerances(rtol: float | None, atol: float | None) -> dict[str, Tolerance]:
    """Return the tolerance of each floating dtype; all other dtypes must be equal."""
    given = {name: value for name, value in (("rtol", rtol), ("atol", atol)) if value is not None}
    return {str(dtype): replace(default, **given) for dtype, default in DEFAULTS.items()}
