"""Feed ONNX Runtime inputs that were drawn from a declaration, and such as it forbids.

Nothing here looks at numbers: that is for verify and for register's search. Sanitizers watch it, to which every read
and write counts.
"""

from __future__ import annotations

from pipeline.data import drawn
from pipeline.errors import VerifyError
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.schema import OWN_ORT, is_own
from pipeline.trial.fuzz import Fuzz
from pipeline.trial.runtime import Runtime

FEW = 5  # problems that are told: the others are mostly the same


def run(layout: Layout, operator: Operator) -> None:
    """Raises VerifyError for inputs that ONNX Runtime and the reference do not treat alike, and for forbidden ones that
    are not refused."""
    fuzz = Fuzz(operator, Runtime(layout.ort_library(operator.name), sanitized=layout.sanitized))
    tried = drawn.read(layout.drawn(operator.name), operator.name)
    # A binding that is written by hand refuses what its author chose to.
    forbidden = () if is_own(OWN_ORT, operator.spec, operator.written) else fuzz.illegal_problems()
    if found := [*fuzz.drawn_problems(tried), *forbidden]:
        more = [f"and {len(found) - FEW} more"] if len(found) > FEW else []
        raise VerifyError("\n".join([*found[:FEW], *more]))
