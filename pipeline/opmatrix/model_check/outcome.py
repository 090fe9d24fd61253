"""The outcome of the check of a whole model, in one word and one sentence. Imports no framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from opmatrix.errors import many
from opmatrix.model_check.finding import CHECK, OPTIMIZER, Finding

Outcome = Literal["right", "wrong", "disagree", "unknown", "unsupported", "unreadable"]
"""`disagree`: the implementations do, and none is known to be wrong. `unknown`: there is nothing to compare the outputs
or a node with, or opmatrix fails. `unsupported`: ONNX Runtime does not implement a node."""
OUTCOMES: tuple[Outcome, ...] = ("right", "wrong", "disagree", "unknown", "unsupported", "unreadable")


def judge(findings: Sequence[Finding], known: Mapping[str, Any]) -> tuple[Outcome, str]:
    """Return the outcome and its reason. `known`: what the parts of the check wrote beside their findings."""
    ours = [f for f in findings if f.mark == "wrong" and f.question == CHECK]
    wrong = [f for f in findings if f.mark == "wrong" and f.question != CHECK]
    notes = [f for f in findings if f.mark == "note"]
    if wrong:
        of_ort = {OPTIMIZER, "runs"} if known.get("missing") else {OPTIMIZER}
        if all(f.question in of_ort for f in wrong):
            agreement = "" if known.get("skipped") or known.get("disputed") else _agreement(findings)
            how = "As it is" if wrong[0].question == OPTIMIZER else "With its functions inlined"
            return "unsupported", f"{wrong[0]}{f'. {how}, it agrees {agreement}' if agreement else ''}"
        chosen = next((f for f in wrong if f.question == "first node"), wrong[0])
        return "wrong", f"{chosen.question}: {chosen}"
    if ours:
        return "unknown", str(ours[0])
    if known.get("random"):
        return "unknown", next(str(f) for f in notes if f.question == "agrees")
    if known.get("disputed"):
        return "disagree", next(str(f) for f in notes if f.question == "agrees")
    if known.get("agrees") and not known.get("skipped"):
        return "right", _agreement(findings)
    if known.get("skipped") or not known.get("judged"):
        return "unknown", next((str(f) for f in notes if f.question == "agrees"), "nothing to compare with")
    return "right", _agreement(findings) or f"{many(known['judged'], 'node')} compared"


def _agreement(findings: Sequence[Finding]) -> str:
    return next((str(f) for f in findings if f.question == "agrees" and f.mark == "ok"), "")
