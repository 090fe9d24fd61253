"""Run every model of a cell in ONNX Runtime and judge every case. The process never imports torch.

`opmatrix.ort_checks` runs and judges; the messages of cases are in `opmatrix.judge`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime

from opmatrix.basics import step_log
from opmatrix.basics.errors import DataError, UsageError, VerifyError, did_you_mean
from opmatrix.basics.files import sha256
from opmatrix.basics.version import minor
from opmatrix.data import dataset
from opmatrix.data.arrays import dtype_name
from opmatrix.data.compare import Comparison
from opmatrix.data.dataset import DataSet
from opmatrix.data.reference import Reference
from opmatrix.data.truth import Judge, read_judges, read_reference
from opmatrix.declaration.checks import refuses_in_onnx_runtime, searches_in_onnx_runtime
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.judge import message
from opmatrix.judge.judge_case import CaseRuns, judge_case, pairs
from opmatrix.ort_checks import inferred_shapes
from opmatrix.ort_checks.fuzz import Fuzz, first_problems, run_enlarged
from opmatrix.ort_checks.run_case import ModelRunner
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, TooNewError
from opmatrix.project import cpu_levels
from opmatrix.project.cells import Cell, is_measured
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import WRONG, CaseKind, CaseResult, Cases, Outcome, Verdict, finite, name_case
from opmatrix.search import drawn as drawn_cases
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import has_function_body, has_kernel, model_dtypes
from opmatrix.spec import DType, Lowering, Model, OpSpec, Tolerance


def run(
    paths: Paths, operator: Operator, *, lowering: Lowering, cell: Cell, case: str | None = None, once: bool = True
) -> None:
    """Judge all cases of one cell and write the verdict; with `case`, print the runs of that one and write nothing.

    `once`: also run the checks that are needed once per torch and ONNX Runtime: concurrent runs of a session, models of
    published versions, the shapes that ONNX Runtime infers, and drawn inputs of an operator that torch does not have.
    Raises VerifyError with a line for each fault, and the command that replays its case.
    """
    operator = operator.at(lowering, cell.opset).run_by(cell.ort)
    verifier = CellVerifier(paths=paths, operator=operator, lowering=lowering, cell=cell, only=case, once=once)
    results = Cases()
    detail = ""
    loaded, exported = _digest(verifier.library), _digest(paths.manifest(operator.name, lowering, cell))
    try:
        results = Cases(verifier.results())
    except (VerifyError, DataError) as error:  # no case can run
        detail = str(error)
    over = verifier.over_cases(results) if any(result.outcome in WRONG for result in results) else {}
    in_common = str(over.get("in_common", ""))
    outcome, detail = _outcome(results, detail, in_common)
    found = Verdict(
        op=operator.name,
        lowering=lowering,
        cell=cell,
        outcome=outcome,
        detail=detail,
        cases=results,
        library=loaded,
        exported=exported,
        cpu_levels=verifier.cpu_levels,
        reference=read_reference(paths.data_manifest(operator.name)),
    )
    path = paths.verdict(operator.name, lowering, cell)
    if case is None:
        verdict.write(path, found)
        verdict.write_mismatches(paths.mismatches(path), verifier.mismatches, over)
    if outcome in WRONG:
        where = f"{path.relative_to(paths.root)}, or each by --case NAME"
        faults = message.with_values(message.faults(found), verifier.mismatches, in_common)
        raise VerifyError(step_log.summarize_faults(faults, subject=str(found), where=where))


def _digest(path: Path | None) -> str:
    return sha256(path) if path and path.is_file() else ""


MEASURED = 3  # failing cases of a cell whose errors the report shows


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How a model is run: sessions, the operators whose nodes it may contain, and tolerances."""

    runtime: OrtSessions
    operators: Sequence[tuple[OpSpec, Reference]]
    tolerances: Mapping[DType, Tolerance]


@dataclass(frozen=True, kw_only=True)
class CellVerifier:
    """Verifies one operator and lowering in one cell: all cases, or `only` one."""

    paths: Paths
    operator: Operator
    lowering: Lowering
    cell: Cell
    only: str | None
    once: bool
    mismatches: list[Mapping[str, Any]] = field(default_factory=list)
    """What the report shows of the first failing cases, by `opmatrix.judge.mismatch`."""

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown case. A case of a function body means the case that it comes from."""
        cases = [c.name for m in self.operator.models for c in m.cases]
        known = [*cases, *(name_case("published", version) for version in self._published_versions)]
        known += map(name_case, self._checks)
        if self.only is None or self.only in known or self._stored:
            return
        of_functions = {name_case("function", case): case for case in cases}
        if self.only in of_functions:
            object.__setattr__(self, "only", of_functions[self.only])
        else:
            near = did_you_mean(self.only, known)
            raise UsageError(f"{self.operator.name} has no case {self.only!r}; it has {', '.join(known)}{near}")

    def results(self) -> Iterator[CaseResult]:
        """Yield the result of each case. Raises VerifyError or DataError where no case can run."""
        if (installed := minor(onnxruntime.__version__)) != self.cell.ort:
            raise VerifyError(f"the cell asks for ONNX Runtime {self.cell.ort}, and {installed} is installed; run it "
                              "in an environment that has it, or choose another cell")  # fmt: skip
        paths, spec = self.paths, self.operator.spec
        operators = [(used, Reference(paths, used)) for used in self._specs]
        runtime = OrtSessions(self.library, sanitized=paths.sanitized, cpu_levels=self._has_levels)
        own = RunConfig(runtime=runtime, operators=operators, tolerances=spec.tolerances[self.lowering])
        cases = [*self._cases(own)]
        yield from cases
        # A failed case says as much as a failed search.
        if (self._stored or self._asks("drawn")) and not any(one.outcome in WRONG for one in cases):
            yield from self._search(own)
        # Torch has libraries of its own: a kernel that needs them would pass here and fail elsewhere.
        if "torch" in sys.modules:
            raise VerifyError("torch was imported in the process that verifies; remove the import from reference.py, "
                              "spec.py and cases.py")  # fmt: skip

    def _cases(self, own: RunConfig) -> Iterator[CaseResult]:
        """Yield the results of the models' cases, of published versions, and of the checks that are needed once."""
        paths, spec, runtime = self.paths, self.operator.spec, own.runtime
        # A function body is the decomposition: it needs neither the operator's library nor its reference.
        plain = None
        if self.lowering == "decomposed" and has_function_body(spec):
            plain = RunConfig(runtime=OrtSessions(None), operators=(), tolerances=spec.tolerances["decomposed"])
        for model in self.operator.models:
            if self.only is None or self.only in (c.name for c in model.cases):
                yield from self._model(model, paths.model(spec.name, self.lowering, self.cell, model.name), own)
                if plain:
                    body = paths.function_model(spec.name, self.cell, model.name)
                    yield from self._model(model, body, plain, "function")
        if self._asks("forbidden"):
            yield from _failed("forbidden", Fuzz(self.operator, runtime).invalid_call_problems())
        if self._asks("inferred"):
            step_log.now_running("the shapes that ONNX Runtime infers")
            yield from _failed("inferred", inferred_shapes.problems(self.operator, runtime))
        for version in self._published_versions:
            if self.only in (None, name_case("published", version)):
                yield self._published(version, own)

    def _asks(self, kind: CaseKind) -> bool:
        """Return whether this cell makes a check, and it, or all, is asked for."""
        return kind in self._checks and self.only in (None, name_case(kind))

    @property
    def library(self) -> Path | None:
        """The library for the sessions; None where ONNX Runtime's own kernels compute."""
        custom = self.lowering == "custom" and self.operator.spec.runtime == "kernel"
        return self.paths.ort_library(self.operator.name) if custom else None

    @cached_property
    def _specs(self) -> Sequence[OpSpec]:
        """The declarations of the nodes that a model may contain."""
        spec = self.operator.spec
        return [spec, *(load_operator(self.paths, name).spec for name in spec.uses)]

    @property
    def _has_levels(self) -> bool:
        return self.library is not None and any(spec.cpu_levels for spec in self._specs)

    @property
    def cpu_levels(self) -> tuple[str, ...]:
        """The levels of the processor at which the kernels of the library run, none where it has one for all."""
        return tuple(map(cpu_levels.name, cpu_levels.of_processor())) if self._has_levels else ()

    @property
    def _published_versions(self) -> tuple[int, ...]:
        return self.operator.published if self.lowering == "custom" and self.once else ()

    @cached_property
    def _checks(self) -> tuple[CaseKind, ...]:
        """The checks besides cases: none without models of the custom node that run, and where they are not needed."""
        spec, kinds = self.operator.spec, list[CaseKind]()
        runs = any(not model.unsupported for model in self.operator.models)
        if not (runs and self.lowering == "custom" and self.once) or self.operator.why_unreadable(self.cell):
            return ()
        if refuses_in_onnx_runtime(self.operator, self.cell):
            kinds.append("forbidden")
        if has_kernel(spec):  # the shapes of the operator's own node
            kinds.append("inferred")
        if searches_in_onnx_runtime(spec) and not self.paths.sanitized:  # under sanitizers ort-fuzz does
            kinds.append("drawn")
        return tuple(kinds)

    @cached_property
    def _stored(self) -> DrawnCase | None:
        searches = self.only and "drawn" in self._checks
        return drawn_cases.stored(self.paths, self.operator, str(self.only)) if searches else None

    def _search(self, config: RunConfig) -> Iterator[CaseResult]:
        operator, reference, case = self.operator, config.operators[0][1], name_case("drawn")
        fuzz, name = Fuzz(operator, config.runtime), operator.name
        if one := self._stored:
            problem, case = fuzz.drawn_problem(one, reference), str(self.only)
            failing = (one, f"{name}-{case} in ONNX Runtime: {problem}") if problem else None
        else:
            try:
                every, ort = drawn_cases.read(self.paths.drawn_inputs(name), name), self.cell.ort
                drawn = [d for d in every if not operator.why_not_carried(model_dtypes(operator.spec, d.model), ort)]
                failing = fuzz.smallest_failing(self.paths, drawn, reference)
            except DataError as error:
                yield from _failed("drawn", [str(error)])
                return
        if failing:
            one, problem = failing
            if measured := fuzz.measure(one, reference):
                self.mismatches.append({**measured, "case": case, "model": case, "drawn": measured["case"]})
            yield from _failed("drawn", [problem], name=case)

    def _published(self, version: int, config: RunConfig) -> CaseResult:
        name = self.operator.name
        path, folder = self.paths.published_model(name, version), self.paths.published_data(name, version)
        model = Model(name=name_case("published", version), cases=())
        try:
            if not path.is_file() or not folder.is_dir():
                lost = path.relative_to(self.paths.root)
                raise VerifyError(f"{lost} or its data are missing. Take them from the history of the project")
            data = dataset.read(folder)
            dtypes = {dtype_name(array) for array in (*data.inputs.values(), *data.outputs.values())}
            model = replace(model, unsupported=self.operator.why_not_carried(dtypes, self.cell.ort))
            step_log.now_running(f"case {model.name}")
            runner = ModelRunner(path, name=name, runtime=config.runtime, operators=config.operators)
            runs = runner.run_case(data, config.tolerances, stored=True)
        except (VerifyError, DataError) as error:
            return self._not_run(model, "published", version, error)
        result = self._judged(model, "published", version, data=data, runs=runs, files=(path, folder))
        detail = f"a model of version {version} runs no more: {result.detail}" if result.detail else ""
        return replace(result, detail=detail)

    def _not_run(self, model: Model, kind: CaseKind, of: object, error: Exception) -> CaseResult:
        """Return the result of a case that did not run: unsupported where that is declared and ONNX Runtime rejects
        it."""
        if isinstance(error, TooNewError) and (declared := self.operator.why_unreadable(self.cell)):
            return _result(model, kind, of, "unsupported", declared)
        if model.unsupported and isinstance(error, RefusedError):
            return _unsupported(model, kind, of, f"ONNX Runtime: {error}")
        return _result(model, kind, of, "failed", str(error))

    def _model(self, model: Model, path: Path, config: RunConfig, kind: CaseKind = "case") -> Iterator[CaseResult]:
        """Yield the results of a model's cases. Where the model cannot run, all of them fail."""
        name = self.operator.name
        folders = [self.paths.data(name, model.name, index) for index in range(len(model.cases))]
        asked = [case for case in model.cases if self.only in (None, case.name)]
        exported = self._manifest.get(model.name, {})
        if path.is_file():
            dataset.link(path.parent, folders)
        if reason := str(exported.get("refused", "")):  # by the lowering, or torch lacks a dtype
            yield from (_unsupported(model, kind, case.name, reason) for case in asked)
            return
        try:
            step_log.now_running(f"model {model.name}")
            runner = ModelRunner(path, name=name, runtime=config.runtime, operators=config.operators)
        except VerifyError as error:
            yield from (self._not_run(model, kind, case.name, error) for case in asked)
            return
        if is_measured(self.cell.ort) and (declared := self.operator.why_unreadable(self.cell)):
            table = "pipeline/opmatrix/project/cells.py"
            detail = f"{table} says that {declared}, but it does. Measure it again with `doit probe`"
            yield from (_result(model, kind, case.name, "failed", detail) for case in asked)
            return
        data_of = {case.name: self._read(folder) for case, folder in zip(model.cases, folders, strict=True)}
        concurrent: dict[str, Comparison | str] = {}
        # Without a library there is no kernel whose state threads could share.
        if self.once and config.runtime.library:
            read = {case: data for case, data in data_of.items() if isinstance(data, DataSet)}
            concurrent = run_enlarged(self.operator, model, config.runtime) | runner.run_concurrently(read)
        ignored = self._computed_alike(model, exported.get("dropped", ()))
        for case in asked:
            data = data_of[case.name]
            try:
                if isinstance(data, DataError):
                    raise data
                step_log.now_running(f"case {case.name}")
                runs = runner.run_case(data, config.tolerances)
            except (VerifyError, DataError) as error:
                yield self._not_run(model, kind, case.name, error)
                continue
            source = case.expected.source if case.expected else ""
            runs = replace(runs, concurrent=concurrent.get(case.name), ignored=ignored, source=source)
            files = path, folders[model.cases.index(case)]
            yield self._judged(model, kind, case.name, data=data, runs=runs, files=files)

    def _computed_alike(self, model: Model, dropped: Sequence[str]) -> str:
        """Return why ONNX Runtime and the reference evaluator may agree on another output than the expected one: the
        lowering drops attributes, or decomposes."""
        name = self.operator.name
        if dropped:
            set_to = [f"{n!r}, which model {model.name!r} sets to {model.attributes[n]!r}" for n in dropped]
            return (
                f"the lowering drops {' and '.join(set_to)}: it emits the nodes of the default. Emit what computes it, "
                f"or refuse it: g.unsupported() in ops/{name}/lowering.py, and `unsupported` in the model"
            )
        if self.lowering != "decomposed":
            return ""
        return (
            f"the nodes that decomposed() in ops/{name}/lowering.py writes compute something else; correct them. Else "
            "the test data are stale (python -m opmatrix data), or the model does not hold the attributes of the case "
            "(python -m opmatrix export)"
        )

    def _judged(
        self, model: Model, kind: CaseKind, of: object, *, data: DataSet, runs: CaseRuns, files: tuple[Path, Path]
    ) -> CaseResult:
        """Return the result of a case that ran. Print the runs of one that is replayed; measure a failing one for its
        message and the report. `files` are the model and the data."""
        judgement = judge_case(runs)
        wrong, found = judgement.detail, [run.comparison for run in judgement.runs]
        result = _result(model, kind, of, "mismatched" if wrong else "verified", wrong)
        if self.only:
            shown, data_shown = (path.relative_to(self.paths.root) for path in files)
            print(f"model {shown}", f"data  {data_shown}", *judgement.lines(), sep="\n")
        if wrong and len(self.mismatches) < MEASURED:
            from opmatrix.judge import mismatch  # which only a failing case needs

            spec, names = self.operator.spec, [*data.outputs]
            if measured := mismatch.of_case(spec, model, result.case, data.inputs, names, pairs(judgement)):
                self.mismatches.append(measured)
        if model.unsupported:
            detail = f"declared unsupported ({model.unsupported}), but it runs. Remove that from its model"
            result = _result(model, kind, of, "failed", detail)
        elif not any(c.problem for c in found):  # another dtype or shape has no error
            result = replace(
                result,
                error=max(c.error for c in found),
                ulp=finite(max(c.ulp for c in found)),
                tolerance_used=max(c.tolerance_used for c in found),
            )
        return replace(result, judged_in=str(runs.judge))

    def over_cases(self, results: Sequence[CaseResult]) -> Mapping[str, Any]:
        """Return what the cases that are wrong as the first wrong one, and the right ones, have and do not have in
        common; nothing for a replay of one case."""
        from opmatrix.judge import case_facts  # which only a failing case needs

        first = next((r for r in results if r.outcome in WRONG and r.kind in ("case", "function")), None)
        if first is None or self.only:
            return {}
        known = {
            (model.name, name_case(first.kind, case.name)): (model, case)
            for model in self.operator.models
            for case in model.cases
        }
        outcomes = (first.outcome, "verified")
        alike = [(known[r.model, r.case], r) for r in results if r.kind == first.kind and r.outcome in outcomes]
        return case_facts.of_cases(
            self.operator.spec,
            [one for one, _ in alike],
            wrong=[r.outcome in WRONG for _, r in alike],
            used=[r.tolerance_used for _, r in alike],
        )

    def _read(self, folder: Path) -> DataSet | DataError:
        try:
            return dataset.read(folder, judge=self._judges.get(folder))
        except DataError as error:
            return error

    @cached_property
    def _judges(self) -> Mapping[Path, Judge]:
        return read_judges(self.paths.data_manifest(self.operator.name))

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        """The export's record of each model, such as why the lowering does not support it."""
        path = self.paths.manifest(self.operator.name, self.lowering, self.cell)
        models: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"] if path.is_file() else {}
        return models


def _failed(kind: CaseKind, problems: Iterable[str], *, name: str = "") -> Iterator[CaseResult]:
    """Yield a failed case with the first problems, if there are any. `name`: of one drawn input."""
    try:
        problems = [*problems]
    except (DataError, RefusedError) as error:
        problems = [str(error)]
    if problems:
        name = name or name_case(kind)
        yield CaseResult(case=name, model=name, outcome="failed", detail=first_problems(problems), kind=kind)


def _unsupported(model: Model, kind: CaseKind, of: object, reason: str) -> CaseResult:
    detail = f"{model.unsupported} ({reason})" if model.unsupported else reason
    return _result(model, kind, of, "unsupported", detail)


def _result(model: Model, kind: CaseKind, of: object, outcome: Outcome, detail: str) -> CaseResult:
    return CaseResult(case=name_case(kind, of), model=model.name, outcome=outcome, detail=detail, kind=kind)


def _outcome(results: Sequence[CaseResult], problem: str, in_common: str) -> tuple[Outcome, str]:
    """Return the outcome of a cell and its detail; a `problem` is why no case ran, `in_common` what the wrong ones have
    in common."""
    outcomes = {r.outcome for r in results}
    if problem or "failed" in outcomes:
        return "failed", message.detail(results, in_common) or problem
    if "mismatched" in outcomes:
        return "mismatched", message.detail(results, in_common)
    return ("unsupported", results[0].detail) if outcomes == {"unsupported"} else ("verified", "")
