"""Errors of the outputs of a contestant, compared with the reference in float64 or longdouble.

The peak memory of a call: how far it raises the peak of the resident set of its process.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opmatrix.addons.bench.forked import Errors
from opmatrix.data.arrays import Array, rounded
from opmatrix.data.case_arrays import reference_attributes
from opmatrix.data.compare import EXACT, blocks_of
from opmatrix.data.reference import Reference, widened
from opmatrix.data.truth import declared_judge
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments
from opmatrix.project.paths import Paths
from opmatrix.spec import Model, Tolerance


def truth(paths: Paths, operator: Operator, model: Model, arrays: Sequence[Array]) -> tuple[dict[str, Array], str]:
    """Return the outputs by name, not rounded to their dtypes, and the precision in which they were evaluated.

    Where outputs jump, that is the declared dtype. Raises DataError where the reference raises.
    """
    spec, reference = operator.spec, Reference(paths, operator.spec)
    inputs = [*case_arguments(spec, model.cases[0], arrays)]
    attributes = reference_attributes(spec, model)
    precision = declared_judge(spec, model.types).precision
    if precision == "declared dtype":
        outputs = reference(inputs, attributes)
    else:
        with np.errstate(all="ignore"):
            outputs = reference.raw(widened(inputs, precision), attributes)
    return {part.name: output for part, output in zip(spec.outputs, outputs, strict=False)}, precision


def errors(actual: Mapping[str, Array], expected: Mapping[str, Array], tolerances: Mapping[str, Tolerance]) -> Errors:
    """Return the errors of those outputs that a contestant has; `tolerances` are by dtype of the actual output."""
    worst: Errors | None = None
    for name, made in actual.items():
        if (wanted := expected.get(name)) is None:
            continue
        if made.shape != wanted.shape:
            return Errors(output=name, problem=f"output {name!r} has the shape {made.shape}, the truth {wanted.shape}")
        if made.dtype.kind in "OU":
            continue
        tolerance = tolerances.get(str(made.dtype), EXACT)
        blocks = [_error(a, e, tolerance) for _, a, e in blocks_of(made, wanted)]
        absolute, used = (max(values) for values in zip(*blocks, strict=True))
        one = Errors(output=name, absolute=absolute, tolerance_used=used)
        if used and str(made.dtype) not in tolerances and made.dtype.kind not in "biu":
            one = Errors(output=name, absolute=absolute, problem=f"the operator has no tolerance for {made.dtype}")
        if worst is None or _of(one) > _of(worst):
            worst = one
    return worst or Errors(problem="it has no output that the truth has")


def _of(found: Errors) -> float:
    return math.inf if found.problem else found.tolerance_used or 0.0


def _error(made: Array, wanted: Array, tolerance: Tolerance) -> tuple[float, float]:
    """Return the largest absolute error of a block, and the largest fraction of the tolerance; inf where only one is
    finite.

    The fraction is that of the verdicts: the truth is rounded to the dtype of the output first.
    """
    wide: Any = np.longdouble
    with np.errstate(all="ignore"):
        actual, exact, truth = made.astype(wide), wanted.astype(wide), rounded(wanted, made.dtype).astype(wide)
        same = (actual == truth) | (np.isnan(actual) & np.isnan(truth))
        beyond = np.where(np.isfinite(actual) & np.isfinite(truth), np.abs(actual - truth), np.inf)
        limit = tolerance.atol + tolerance.rtol * np.abs(truth)
        used = np.where(same, 0, np.where(np.isfinite(beyond) & (limit > 0), beyond / limit, np.inf))
        error = np.where(np.isfinite(actual) & np.isfinite(exact), np.abs(actual - exact), np.where(same, 0, np.inf))
    return (float(error.max()), float(used.max())) if error.size else (0.0, 0.0)


_RESET = "5"  # resets the peak of the resident set, VmHWM: proc_pid_clear_refs(5)


def peak(call: Callable[[], Any]) -> int | None:
    """Return by how many bytes one call raises the peak, or None where the peak cannot be reset.

    Inputs are resident before. Free memory of earlier calls is returned to Linux first, so that outputs and temporary
    memory of the call count. A page is the smallest unit.
    """
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text(_RESET, encoding="utf-8")
        before = _status("VmRSS")
        result = call()
        after = _status("VmHWM")
    except OSError:
        return None
    del result
    return max(0, after - before)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1]) * 1024
