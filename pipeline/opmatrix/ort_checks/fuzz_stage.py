"""Run the operator in ONNX Runtime on drawn inputs and on invalid calls, for the sanitizers."""

from __future__ import annotations

from opmatrix.basics.errors import VerifyError
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.ort_checks.fuzz import Fuzz, first_problems
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.search import drawn as drawn_cases
from opmatrix.signature.signature import OWN_ORT, is_own


def run(paths: Paths, operator: Operator) -> None:
    """Raise VerifyError for a drawn input on which the kernel differs from the reference, and for invalid calls that
    are not rejected."""
    library, levels = paths.ort_library(operator.name), operator.spec.cpu_levels
    fuzz = Fuzz(operator, OrtSessions(library, sanitized=paths.sanitized, cpu_levels=levels))
    tried = drawn_cases.read(paths.drawn_inputs(operator.name), operator.name)
    failing = fuzz.smallest_failing(paths, tried, Reference(paths, operator.spec))
    # A handwritten binding checks only what its author decided.
    forbidden = () if is_own(OWN_ORT, operator.spec, operator.handwritten_files) else fuzz.invalid_call_problems()
    if problems := [*([failing[1]] if failing else []), *forbidden]:
        raise VerifyError(first_problems(problems))
