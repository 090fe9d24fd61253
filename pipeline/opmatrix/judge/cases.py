"""Check that the cases of an operator could fail: find wrong kernels that pass all cases of a dtype.

The kernels are made of the reference: an output is zeros or a copy of an input; an input is read as zeros, as ones or
as absent; an attribute has a constant value. Each must fail in a case of each declared dtype. What a declaration
excepts, by `no_effect`, must pass for some dtype. It needs the reference alone, so that no edit of a kernel repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator

from opmatrix.basics import step_log
from opmatrix.basics.errors import DataError
from opmatrix.data.evaluated import EvaluatedCase, loosest
from opmatrix.data.reference import Reference
from opmatrix.declaration import source_files
from opmatrix.declaration.checks import CASES
from opmatrix.declaration.load import Operator
from opmatrix.judge import wrong_kernels
from opmatrix.judge.wrong_kernels import SMALL, Cases, Finding, numbers_in
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord, Outcome
from opmatrix.sizes import rules
from opmatrix.sizes.variadic import Item, of_model, variadic_output, with_outputs
from opmatrix.spec import Attribute, Input, OpSpec, Output


def hollow_problems(spec: OpSpec, cases: Cases) -> list[str]:
    """Return what is wrong, a line for each, with the dtypes for which it is."""
    smallest_first = sorted(cases, key=lambda one: (not one.elements, one.elements))  # and those without any last
    groups = [*_groups(spec, smallest_first)]
    found: dict[str, list[str]] = {}  # by what it is: the line, and the groups after its first
    lifted: dict[tuple[str, str], set[str]] = {}  # by the part that has `no_effect`, the groups that need it
    for group, chosen in groups:
        if not chosen:
            variable, _, dtype = group.partition("=")
            add = f"Add a model with types={{{variable!r}: {dtype!r}}}, or remove the dtype"
            found[group] = [f"no case has {group}, which `types` declares. {add}"]
            continue
        for finding in _findings(spec, chosen):
            if finding.part and finding.part.no_effect:
                lifted.setdefault(_key(finding.part), set()).add(group)
            elif finding.what in found:
                found[finding.what].append(group)
            else:
                found[finding.what] = [f"{group}{': ' if group else ''}{finding.what}{finding.why}"]
    lines = [f"{line}. Also {', '.join(others)}" if others else line for line, *others in found.values()]
    declared: list[Input | Attribute | Output] = [*spec.inputs, *spec.attributes, *spec.outputs]
    lines += [
        f"{kind} {name!r} declares no_effect={part.no_effect!r}, but cases of each dtype show its effect. Remove it"
        for part in declared
        for kind, name in [_key(part)]
        if part.no_effect and (kind, name) not in lifted
    ]
    return lines


def _key(part: Input | Attribute | Output) -> tuple[str, str]:
    return ("output", part.of) if isinstance(part, Item) else (type(part).__name__.lower(), part.name)


def _groups(spec: OpSpec, cases: Cases) -> Iterator[tuple[str, Cases]]:
    """Yield ``T=float32`` and the cases that have it, for each declared dtype; "" and all cases if there is none."""
    for variable, dtypes in spec.types.items():
        for dtype in dtypes:
            yield f"{variable}={dtype}", [one for one in cases if one.model.types[variable] == dtype]
    if not spec.types:
        yield "", cases


def _findings(spec: OpSpec, cases: Cases) -> Iterator[Finding]:
    counts = [len(of_model(spec, one.model).outputs) for one in cases]  # a variadic one has as many as a case has most
    blind, outputs = 0, with_outputs(spec, max(counts)).outputs if variadic_output(spec) else spec.outputs
    for index, output in enumerate(outputs):
        having = [
            one
            for one, count in zip(cases, counts, strict=True)
            if one.has(output) and (not isinstance(output, Item) or index < count)
        ]
        found = [*wrong_kernels.findings(output, index, having)]
        yield from found
        blind += any(finding.part is None for finding in found)
    if blind == len(outputs):  # so nothing can show the effect of an input or an attribute
        return
    for part in spec.inputs:
        yield from wrong_kernels.of_input(part, cases)
    repeated = {dim for part in rules.required(spec) for _, dim in rules.axes(part)}
    for attribute in spec.attributes:
        if attribute.name in repeated and not attribute.no_effect:
            continue  # it is the size of an input, so that no call can have another value
        yield from wrong_kernels.of_attribute(attribute, cases)


def run(paths: Paths, operator: Operator) -> None:
    """Write the record; raise DataError with every wrong kernel that all cases of a dtype let pass.

    While the declaration, the cases or the reference contain a TODO, the record is "unsupported" instead: they are not
    finished.
    """
    spec = operator.spec
    reference, tolerances = Reference(paths, spec), loosest(spec)
    found = [
        EvaluatedCase(
            spec=spec,
            model=model,
            case=case,
            folder=paths.data(spec.name, model.name, index),
            reference=reference,
            tolerances=tolerances,
        )
        for model in operator.models
        for index, case in enumerate(model.cases)
    ]
    path = paths.cases(spec.name).relative_to(paths.root)
    problems = [f"{path}: {line}" for line in hollow_problems(spec, found)]
    reference.require_independent()
    small = [one for one in found if one.elements <= SMALL]
    idle = [one.case.name for one in small if not any(numbers_in(array).any() for array in one.expected)]
    note = "every expected element is 0 or NaN, or there is none"
    if idle:
        step_log.detail(f"note: {note}, in case {', '.join(idle)}")
    outcome: Outcome = "failed" if problems else "verified"
    marked = source_files.unfinished(paths, spec.name, "spec.py", "cases.py", "reference.py")
    if problems and marked:
        outcome = "unsupported"
        problems.insert(0, f"{source_files.MARK}s are left in {', '.join(marked)}, so these are not errors yet:")
    record = CheckRecord(
        op=spec.name,
        check=CASES,
        outcome=outcome,
        detail="\n".join(problems),
        weak=(f"reference: not independent: {why}",) if (why := spec.dependent_reference) else (),
        results=tuple(
            {"model": one.model.name, "case": one.case.name} | ({"note": note} if one.case.name in idle else {})
            for one in found
        ),
    )
    verdict.write(paths.cases_record(spec.name), record)
    if outcome == "failed":
        raise DataError(record.detail)
