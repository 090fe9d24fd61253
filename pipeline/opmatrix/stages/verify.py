"""Run every model of a cell in ONNX Runtime, in a process that never imports torch, and judge every case."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime

from opmatrix import step_log, verdict
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.declaration.torch_signature import has_function_body
from opmatrix.errors import DataError, UsageError, VerifyError, did_you_mean
from opmatrix.matrix.cells import Cell, why_unreadable
from opmatrix.ort_checks.judge_case import CaseJudgement, judge_case
from opmatrix.ort_checks.run_case import ModelRunner
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, TooNewError
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, DType, Lowering, Model, OpSpec, Tolerance
from opmatrix.testdata import case_message, onnx_dataset
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.testdata.onnx_dataset import DataSet
from opmatrix.verdict import WRONG, CaseResult, Outcome, Verdict, finite
from opmatrix.version import minor


def run(
    layout: Paths,
    operator: Operator,
    *,
    lowering: Lowering,
    cell: Cell,
    case: str | None = None,
    once: bool = True,
) -> None:
    """Judge all cases of one cell and write the verdict; with `case`, print how that one went and write nothing.

    What says as much in one cell as in all is tried in the `first`: a session that several threads use at once, and the
    models of published versions.
    Raises VerifyError with a line for each fault, and the command that replays its case.
    """
    started = time.perf_counter()
    bench = CellVerifier(layout=layout, operator=operator, lowering=lowering, cell=cell, only=case, once=once)
    results: tuple[CaseResult, ...] = ()
    detail = ""
    try:
        results = tuple(bench.results())
    except (VerifyError, DataError) as error:  # it keeps every case from running
        detail = str(error)
    found = _verdict(bench, results, detail)
    if case is None:
        seconds = round(time.perf_counter() - started, 3)
        verdict.write(layout.verdict(operator.name, lowering, cell), replace(found, seconds=seconds))
    if found.outcome in WRONG:
        path = layout.verdict(operator.name, lowering, cell).relative_to(layout.root)
        raise VerifyError(
            step_log.summarize_faults(
                case_message.faults(found), subject=str(found), where=f"{path}, or each by --case NAME"
            )
        )


PUBLISHED = "published_"  # what the name of a case begins with that is the model of a published version
FUNCTION = "_function"  # what the name of a case ends with where it ran through the function body


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a model is tried with: a runtime, the operators that stand for themselves in it, and tolerances."""

    runtime: OrtSessions
    operators: Sequence[tuple[OpSpec, Reference]]
    tolerances: Mapping[DType, Tolerance]


@dataclass(frozen=True, kw_only=True)
class CellVerifier:
    """One operator, lowering and cell, and the cases that are asked for: all, or `only` one."""

    layout: Paths
    operator: Operator
    lowering: Lowering
    cell: Cell
    only: str | None
    once: bool

    def __post_init__(self) -> None:
        """Raise UsageError for an unknown case; that of a function body is the case that it comes from."""
        known = [c.name for m in self.operator.models for c in m.cases] + [PUBLISHED + str(v) for v in self._kept()]
        if self.only is None or self.only in known:
            return
        if (case := self.only.removesuffix(FUNCTION)) in known:
            object.__setattr__(self, "only", case)
        else:
            near = did_you_mean(self.only, known)
            raise UsageError(f"{self.operator.name} has no case {self.only!r}; it has {', '.join(known)}{near}")

    def results(self) -> Iterator[CaseResult]:
        """Yield the result of each case. Raises VerifyError or DataError for what keeps all of them from running."""
        _require_version(self.cell)
        layout, spec = self.layout, self.operator.spec
        specs = [spec, *(load_operator(layout, name).spec for name in spec.uses)]  # whose nodes a model may have
        operators = [(used, Reference(layout, used)) for used in specs]
        # Without the library where none of its kernels computes.
        library = layout.ort_library(spec.name) if self.lowering == "custom" and spec.runtime == "kernel" else None
        runtime = OrtSessions(library, sanitized=layout.sanitized)
        own = RunConfig(runtime=runtime, operators=operators, tolerances=spec.tolerances[self.lowering])
        # A body is the decomposition once more: it must do without our library, and without our reference.
        plain = None
        if self.lowering == "decomposed" and has_function_body(spec):
            plain = RunConfig(runtime=OrtSessions(None), operators=(), tolerances=spec.tolerances["decomposed"])
        for model in self.operator.models:
            if self.only is None or self.only in (c.name for c in model.cases):
                place = (spec.name, self.lowering, self.cell, model.name)
                yield from self._model(model, layout.model(*place), own)
                if plain:
                    body = layout.function_model(spec.name, self.cell, model.name)
                    for result in self._model(model, body, plain):
                        yield replace(result, case=result.case + FUNCTION)
        yield from (self._published(v, own) for v in self._kept() if self.only in (None, PUBLISHED + str(v)))
        _require_no_torch()

    def _kept(self) -> tuple[int, ...]:
        """Return the published versions whose models this cell runs."""
        return self.operator.published if self.lowering == "custom" and self.once else ()

    def _published(self, version: int, setting: RunConfig) -> CaseResult:
        """Return the result of the model that is kept of a published version: others have models like it."""
        name, case = self.operator.name, f"{PUBLISHED}{version}"
        path, folder = self.layout.published_model(name, version), self.layout.published_data(name, version)
        made = Model(name=case, cases=(Case(name=case, inputs={}),))
        try:
            if not path.is_file() or not folder.is_dir():
                lost = path.relative_to(self.layout.root)
                raise VerifyError(f"{lost} or its data are missing. Take them from the history of the project")
            step_log.now_running(f"case {case}")
            trial = ModelRunner(path, name=name, runtime=setting.runtime, operators=setting.operators)
            judgement = judge_case(trial.run_case(onnx_dataset.read(folder), setting.tolerances))
        except (VerifyError, DataError) as error:
            return _not_run(made, made.cases[0], error, self.cell)
        if self.only:
            self._show(path, folder, judgement)
        found = _judged(made, made.cases[0], judgement)
        return replace(found, detail=found.detail and case_message.published(version, found.detail))

    def _model(self, model: Model, path: Path, setting: RunConfig) -> Iterator[CaseResult]:
        """Yield the results of a model's cases. What keeps the model from running fails all of them."""
        name = self.operator.name
        folders = [self.layout.data(name, model.name, index) for index in range(len(model.cases))]
        said = self._manifest.get(model.name, {})
        if reason := model.unsupported and str(said.get("refused", "")):
            said_so = case_message.unsupported(model, reason)
            yield from (_result(model, case, "unsupported", said_so) for case in self._asked(model))
            return
        try:
            step_log.now_running(f"model {model.name}")
            trial = ModelRunner(path, name=name, runtime=setting.runtime, operators=setting.operators)
            onnx_dataset.link(path.parent, folders)
        except VerifyError as error:
            yield from (_not_run(model, case, error, self.cell) for case in self._asked(model))
            return
        if declared := why_unreadable(self.cell):
            detail = case_message.reads_although_unreadable(declared)
            yield from (_result(model, case, "failed", detail) for case in self._asked(model))
            return
        found = {case.name: _read(folder) for case, folder in zip(model.cases, folders, strict=True)}
        # Of what ONNX Runtime computes itself, nothing is ours that threads could share.
        shared = self.once and setting.runtime.library
        ours = {name: data for name, data in found.items() if shared and isinstance(data, DataSet)}
        concurrent = trial.run_concurrently(ours)
        ignored = case_message.ignored_attributes(name, model, said.get("dropped", ()))
        for case in self._asked(model):
            data = found[case.name]
            try:
                if isinstance(data, DataError):
                    raise data
                step_log.now_running(f"case {case.name}")
                runs = trial.run_case(data, setting.tolerances)
            except (VerifyError, DataError) as error:
                yield _not_run(model, case, error, self.cell)
                continue
            judgement = judge_case(replace(runs, concurrent=concurrent.get(case.name), ignored=ignored))
            if self.only:
                self._show(path, folders[model.cases.index(case)], judgement)
            yield _judged(model, case, judgement)

    @cached_property
    def _manifest(self) -> Mapping[str, Any]:
        """What the export said of each model, such as why the lowering refused it."""
        try:
            manifest = json.loads(self.layout.manifest(self.operator.name, self.lowering, self.cell).read_text())
        except FileNotFoundError:
            return {}
        found: Mapping[str, Any] = manifest["models"]
        return found

    def _asked(self, model: Model) -> list[Case]:
        return [case for case in model.cases if self.only in (None, case.name)]

    def _show(self, model: Path, data: Path, judgement: CaseJudgement) -> None:
        """Print how a replayed case went."""
        model, data = model.relative_to(self.layout.root), data.relative_to(self.layout.root)
        runs = [(run.name, run.comparison) for run in judgement.runs]
        verified = not judgement.detail
        print(*case_message.replay_lines(model, data, runs, evaluated=judgement.evaluated, verified=verified), sep="\n")


def _read(folder: Path) -> DataSet | DataError:
    try:
        return onnx_dataset.read(folder)
    except DataError as error:
        return error


def _require_version(cell: Cell) -> None:
    if (installed := minor(onnxruntime.__version__)) != cell.ort:
        raise VerifyError(f"the cell asks for ONNX Runtime {cell.ort}, and {installed} is installed; run it in an "
                          "environment that has it, or choose another cell")  # fmt: skip


def _require_no_torch() -> None:
    """Torch brings libraries of its own, so that a kernel that needs them would pass here and fail elsewhere."""
    if "torch" in sys.modules:
        raise VerifyError("torch was imported in the process that verifies; remove the import from reference.py, "
                          "spec.py and cases.py")  # fmt: skip


def _not_run(model: Model, case: Case, error: Exception, cell: Cell) -> CaseResult:
    """Return the result of a case that did not run: as declared, where ONNX Runtime refuses what is unsupported."""
    if isinstance(error, TooNewError) and (declared := why_unreadable(cell)):
        return _result(model, case, "unsupported", declared)
    if model.unsupported and isinstance(error, RefusedError):
        return _result(model, case, "unsupported", case_message.unsupported(model, f"ONNX Runtime: {error}"))
    return _result(model, case, "failed", str(error))


def _judged(model: Model, case: Case, judgement: CaseJudgement) -> CaseResult:
    if model.unsupported:
        return _result(model, case, "failed", case_message.runs_although_unsupported(model))
    found = [r.comparison for r in judgement.runs]
    if any(c.problem for c in found):  # another dtype or shape has no error
        return _result(model, case, "mismatched", judgement.detail)
    return replace(
        _result(model, case, "mismatched" if judgement.detail else "verified", judgement.detail),
        error=max(c.error for c in found),
        ulp=finite(max(c.ulp for c in found)),
        tolerance_used=max(c.tolerance_used for c in found),
    )


def _result(model: Model, case: Case, outcome: Outcome, detail: str) -> CaseResult:
    return CaseResult(case=case.name, model=model.name, outcome=outcome, detail=detail)


def _verdict(bench: CellVerifier, results: Sequence[CaseResult], detail: str) -> Verdict:
    wrong = [r for r in results if r.outcome in WRONG]
    outcome: Outcome = "verified"
    if detail or wrong:
        outcome = "failed" if detail or any(r.outcome == "failed" for r in wrong) else "mismatched"
    elif results and all(r.outcome == "unsupported" for r in results):
        outcome, detail = "unsupported", results[0].detail
    return Verdict(
        op=bench.operator.name,
        lowering=bench.lowering,
        cell=bench.cell,
        outcome=outcome,
        detail=case_message.detail(results) or detail,
        cases=tuple(results),
    )
