"""Test an operator in torch, in parts that are steps of their own (`opmatrix.torch_checks` has each).

"schema"    the schema that the compiled library registers, and opcheck
"nodes"     the nodes that the exporters write for it, with the compiled library loaded: the same as without
"kernel"    its outputs, compared with the expected ones
"search"    property test: its outputs for inputs that hypothesis draws, compared with the reference
"forbidden" it rejects invalid calls: where values have rules, and when asked for, as the sanitizers do
"gradient"  the gradient formula of torch_op.py, if there is one; loads no library
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from opmatrix.basics import step_log
from opmatrix.basics.errors import OpmatrixError, RegisterError, UsageError, did_you_mean
from opmatrix.declaration.checks import Part, register_parts
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import sampled, samples
from opmatrix.judge.message import tells_who, with_values
from opmatrix.project.cells import TORCH_EXPORTERS, Cell, opsets_of
from opmatrix.project.dtypes import why_not_written
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord
from opmatrix.signature.signature import has_onnx_types, has_string_lists, model_dtypes
from opmatrix.torch_checks.case_calls import case_call, complete
from opmatrix.torch_checks.kernel_check import case_checks, check_case
from opmatrix.torch_ops import features, load
from opmatrix.torch_ops.call import torch_minor
from opmatrix.torch_ops.load import LoadedLibrary

MEASURED = 3  # failing cases whose errors the report shows


def parts(paths: Paths, operator: Operator, *, asked: Sequence[Part] | None = None) -> tuple[Part, ...]:
    """Return the parts that are `asked` for, else those that doit plans, in an order that one process can run.

    "gradient" comes first: it defines the operator with the reference as its kernel and then removes the definition,
    which torch allows only before the compiled library is loaded. A library stays loaded.
    """
    found = asked or register_parts(paths, operator, torch_minor()) or ("schema",)  # which says why there is none
    return tuple(sorted(dict.fromkeys(found), key=lambda part: part != "gradient"))


def run(paths: Paths, operator: Operator, *, part: Part) -> None:
    """Test one part and write its record. Raises RegisterError, whose message is in the record, too."""
    path = paths.register_manifest(operator.name, part, torch=torch_minor())
    record = CheckRecord(op=operator.name, check=part, torch=torch_minor(), outcome="failed")
    known, lacking = features.with_known_dtypes(operator)
    verdict.write_mismatches(paths.mismatches(path), ())
    try:
        results = tuple(_results(paths, known, part) if known.models else [{"check": part, "skipped": lacking}])
    except OpmatrixError as error:
        verdict.write(path, replace(record, detail=str(error)))
        raise
    # Without faults; unsupported if nothing was checked.
    skipped = [str(result["skipped"]).removeprefix("skipped: ") for result in results if "skipped" in result]
    if part == "gradient" and not results:
        skipped = ["torch_op.py has no gradient"]
    record = replace(record, results=results)
    if len(skipped) < max(1, len(results)):
        weak = tuple(why for result in results for why in result.get("weak", ()))
        verdict.write(path, replace(record, outcome="verified", weak=weak))
    else:
        verdict.write(path, replace(record, outcome="unsupported", detail="; ".join(dict.fromkeys(skipped))))


def replay(paths: Paths, operator: Operator, *, case: str) -> None:
    """Test the kernel with one case, and write nothing. Raises RegisterError, or UsageError for an unknown case."""
    known = [c.name for model in operator.models for c in model.cases]
    if case not in known:
        near = did_you_mean(case, known)
        raise UsageError(f"{operator.name} has no case {case!r}; it has {', '.join(known)}{near}")
    _kernel(paths, operator, only=case)


def replay_drawn(paths: Paths, operator: Operator, *, case: str) -> None:
    """Test the kernel with one drawn case; write nothing. Raises RegisterError, or UsageError for an unknown case."""
    from opmatrix.torch_checks import property_test

    property_test.replay(paths, operator, load.load(paths, operator), case=case)


def _results(paths: Paths, operator: Operator, part: Part) -> Sequence[Mapping[str, Any]]:
    """Test one part. Each imports what it needs itself: the exporters alone take 0.7 CPU s."""
    if part == "gradient":  # before any library is loaded
        from opmatrix.torch_checks import gradient

        if not features.REGISTRATION.available:
            return [{"check": "gradient", "skipped": features.REGISTRATION.skip_reason}]
        usable = features.differentiable(operator)
        if operator.models and not usable.models:
            return [{"check": "gradient", "skipped": "torch computes nothing in float8, and so no gradient"}]
        return gradient.results(paths, usable)
    if part == "kernel":
        return [*_kernel(paths, operator), *load.library_digest(paths, operator)]
    loaded = load.load(paths, operator)
    if part == "schema":
        from opmatrix.torch_checks import opcheck

        return opcheck.results(paths, operator, loaded)
    if part == "nodes":
        return export_results(paths, operator, loaded)
    if part == "search":
        from opmatrix.torch_checks import property_test

        return [*property_test.run(paths, operator, loaded), *load.library_digest(paths, operator)]
    from opmatrix.torch_checks import invalid_calls

    return invalid_calls.results(operator, loaded.overload)


def _kernel(paths: Paths, operator: Operator, only: str | None = None) -> list[dict[str, Any]]:
    loaded = load.load(paths, operator)  # keeps a definition in Python alive
    results, faults, mismatches = list[dict[str, Any]](), {}, list[dict[str, Any]]()
    for check in case_checks(paths, operator, loaded, only=only):
        problems, result = check_case(check, mismatches if len(mismatches) < MEASURED else None)
        if problems:
            faults[check.case.name] = "\n".join(problems)
        results.append({"model": check.model.name, "case": check.case.name, **result})
    if faults:
        over = _over_cases(operator, results, faults) if only is None else {}
        if only is None:
            record = paths.register_manifest(operator.name, "kernel", torch=torch_minor())
            verdict.write_mismatches(paths.mismatches(record), mismatches, over)
        faults = dict(sorted(faults.items(), key=lambda fault: not tells_who(fault[1])))
        faults = with_values(faults, mismatches, str(over.get("in_common", "")))
        where = f"each by python -m opmatrix register {operator.name} --part kernel --case NAME"
        raise RegisterError(step_log.summarize_faults(faults, subject=f"{operator.name} in torch", where=where))
    return results


def _over_cases(
    operator: Operator, results: Sequence[Mapping[str, Any]], faults: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return what the cases that are wrong as the first wrong one, and the right ones, have and do not have in common.
    The kernel refuses some cases, which have no error, and computes others wrongly."""
    from opmatrix.judge import case_facts  # which only a failing case needs

    described = [(model, case) for model in operator.models for case in model.cases]
    both = [*zip(described, results, strict=True)]
    refused = next("error" not in result for (_, case), result in both if case.name in faults)
    alike = [(one, result) for one, result in both if one[1].name not in faults or ("error" not in result) == refused]
    return case_facts.of_cases(
        operator.spec,
        [one for one, _ in alike],
        wrong=[case.name in faults for (_, case), _ in alike],
        used=[result.get("tolerance_used") for _, result in alike],
    )


_OPSET = 18  # of both exporters


def export_results(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, str]]:
    """Export one model with each exporter, through the gates of every export. Raises ExportError."""
    from opmatrix.export.exporters import export
    from opmatrix.export.generated_modules import load_generated

    operator = replace(operator, models=sampled(operator))
    generated = load_generated(paths, operator.name)
    complete(paths, operator, loaded, generated)
    # Its first case, which export traces: that of opcheck may have a size of 1 in a dynamic dimension.
    model = next((model for model, *_ in samples(operator)), operator.models[0])
    traced = tuple(case_call(operator.spec, model).tensors)
    checks = []
    for exporter in TORCH_EXPORTERS:
        if not (legal := opsets_of(exporter, torch_minor())):
            checks.append({"model": operator.name, "check": exporter, "skipped": features.DYNAMO.skip_reason})
            continue
        if why := why_not_written(exporter, model_dtypes(operator.spec, model), torch_minor()):
            checks.append({"model": operator.name, "check": exporter, "skipped": why})
            continue
        opset = min(max(operator.spec.min_opset, _OPSET), legal.stop - 1)
        cell = Cell(torch=torch_minor(), exporter=exporter, opset=opset, ort="0.0")
        if exporter == "legacy" and (has_string_lists(operator.spec) or has_onnx_types(operator.spec)):
            reason = f"skipped: {operator.unavailable_reason(cell)}"
            checks.append({"model": operator.name, "check": exporter, "skipped": reason})
            continue
        expected = generated.expected(operator.spec, model, "custom", cell)
        export(expected, generated, traced)
        checks.append({"model": str(expected), "check": "export"})
    return checks
