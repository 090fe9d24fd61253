"""Check that the cases of an operator could fail: with the reference alone, so that no edit of a kernel repeats it."""

from __future__ import annotations

from opmatrix import step_log, verdict
from opmatrix.declaration import placeholders
from opmatrix.declaration.checks import CASES
from opmatrix.declaration.load import Operator
from opmatrix.errors import DataError
from opmatrix.project.paths import Paths
from opmatrix.testdata import hollow_proof
from opmatrix.testdata.evaluated_cases import EvaluatedCase, loosest
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.verdict import CheckRecord, Outcome


def run(layout: Paths, operator: Operator) -> None:
    """Write the record; raise DataError with every wrong kernel that all cases of a dtype let pass.

    While the declaration, the cases or the reference contain a TODO, the record is "unsupported" instead: they are not
    finished.
    """
    spec = operator.spec
    reference, tolerances = Reference(layout, spec), loosest(spec)
    found = [
        EvaluatedCase(
            spec=spec,
            model=model,
            case=case,
            folder=layout.data(spec.name, model.name, index),
            reference=reference,
            tolerances=tolerances,
        )
        for model in operator.models
        for index, case in enumerate(model.cases)
    ]
    path = layout.cases(spec.name).relative_to(layout.root)
    problems = [f"{path}: {line}" for line in hollow_proof.problems(spec, found)]
    reference.require_independent()
    idle = hollow_proof.idle(found)
    if idle:
        step_log.detail(f"note: every expected element is 0 or NaN, or there is none, in case {', '.join(idle)}")
    outcome: Outcome = "failed" if problems else "verified"
    marked = placeholders.unfinished(layout, spec.name, "spec.py", "cases.py", "reference.py")
    if problems and marked:
        outcome = "unsupported"
        problems.insert(0, f"{placeholders.MARK}s are left in {', '.join(marked)}, so these are not errors yet:")
    record = CheckRecord(
        op=spec.name,
        check=CASES,
        outcome=outcome,
        detail="\n".join(problems),
        weak=(f"reference: not independent: {why}",) if (why := spec.dependent_reference) else (),
        results=tuple(
            {"model": one.model.name, "case": one.case.name}
            | ({"note": "every expected element is 0 or NaN, or there is none"} if one.case.name in idle else {})
            for one in found
        ),
    )
    verdict.write(layout.cases_record(spec.name), record)
    if outcome == "failed":
        raise DataError(record.detail)
