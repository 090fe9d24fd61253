"""Feed ONNX Runtime inputs that were drawn from a declaration, and such as it forbids.

Nothing here looks at numbers: that is for verify and for register's search. Sanitizers watch it, to which every read
and write counts.
"""

from __future__ import annotations

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_ORT, is_own
from opmatrix.errors import VerifyError
from opmatrix.ort_checks.fuzz import Fuzz
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from opmatrix.testdata import drawn_cases

FEW = 5  # problems that are told: the others are mostly the same


def run(layout: Paths, operator: Operator) -> None:
    """Raises VerifyError for inputs that ONNX Runtime and the reference do not treat alike, and for forbidden ones that
    are not refused."""
    fuzz = Fuzz(operator, OrtSessions(layout.ort_library(operator.name), sanitized=layout.sanitized))
    tried = drawn_cases.read(layout.drawn(operator.name), operator.name)
    # A binding that is written by hand refuses what its author chose to.
    forbidden = () if is_own(OWN_ORT, operator.spec, operator.written) else fuzz.invalid_call_problems()
    if found := [*fuzz.drawn_problems(tried), *forbidden]:
        more = [f"and {len(found) - FEW} more"] if len(found) > FEW else []
        raise VerifyError("\n".join([*found[:FEW], *more]))
