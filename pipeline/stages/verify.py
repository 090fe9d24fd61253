"""Run every model of a cell in ONNX Runtime, in a process that never imports torch, and judge every case."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime

from pipeline import aside, verdict
from pipeline.data import dataset
from pipeline.data.dataset import DataSet
from pipeline.data.reference import Reference
from pipeline.errors import DataError, UsageError, VerifyError, did_you_mean
from pipeline.layout import Layout
from pipeline.load import Operator, load_operator
from pipeline.matrix import Cell, unreadable
from pipeline.project import minor
from pipeline.schema import has_function_body
from pipeline.spec import Case, DType, Lowering, Model, OpSpec, Tolerance
from pipeline.trial.judge import Judgement, judge
from pipeline.trial.runtime import RefusedError, Runtime, TooNewError
from pipeline.trial.trial import Trial
from pipeline.verdict import WRONG, CaseResult, Outcome, Verdict, percent


def run(
    layout: Layout,
    operator: Operator,
    *,
    lowering: Lowering,
    cell: Cell,
    case: str | None = None,
    first: bool = True,
) -> None:
    """Judge all cases of one cell and write the verdict; with `case`, print how that one went and write nothing.

    What says as much in one cell as in all is tried in the `first`: a session that several threads use at once, and the
    models of published versions.
    Raises VerifyError with a line for each fault, and the command that replays its case.
    """
    started = time.perf_counter()
    bench = Bench(layout=layout, operator=operator, lowering=lowering, cell=cell, only=case, first=first)
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
        raise VerifyError(aside.few(_messages(found), subject=str(found), where=f"{path}, or each by --case NAME"))


PUBLISHED = "published_"  # what the name of a case begins with that is the model of a published version
FUNCTION = "_function"  # what the name of a case ends with where it ran through the function body


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a model is tried with: a runtime, the operators that stand for themselves in it, and tolerances."""

    runtime: Runtime
    operators: Sequence[tuple[OpSpec, Reference]]
    tolerances: Mapping[DType, Tolerance]


@dataclass(frozen=True, kw_only=True)
class Bench:
    """One operator, lowering and cell, and the cases that are asked for: all, or `only` one."""

    layout: Layout
    operator: Operator
    lowering: Lowering
    cell: Cell
    only: str | None
    first: bool

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
        operators = [(used, Reference(layout, used)) for used in self._specs()]
        own = Setting(runtime=self._runtime(), operators=operators, tolerances=spec.tolerances[self.lowering])
        # A body is the decomposition once more: it must do without our library, and without our reference.
        plain = None
        if self.lowering == "decomposed" and has_function_body(spec):
            plain = Setting(runtime=Runtime(None), operators=(), tolerances=spec.tolerances["decomposed"])
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
        return self.operator.published if self.lowering == "custom" and self.first else ()

    def _published(self, version: int, setting: Setting) -> CaseResult:
        """Return the result of the model that is kept of a published version: others have models like it."""
        name, case = self.operator.name, f"{PUBLISHED}{version}"
        path, folder = self.layout.published_model(name, version), self.layout.published_data(name, version)
        made = Model(name=case, cases=(Case(name=case, inputs={}),))
        try:
            if not path.is_file() or not folder.is_dir():
                lost = path.relative_to(self.layout.root)
                raise VerifyError(f"{lost} or its data are missing. Take them from the history of the project")
            aside.at(f"case {case}")
            trial = Trial(path, name=name, runtime=setting.runtime, operators=setting.operators)
            judgement = judge(trial.evidence(dataset.read(folder), setting.tolerances))
        except (VerifyError, DataError) as error:
            return _not_run(made, made.cases[0], error, self.cell)
        if self.only:
            _tell(path.relative_to(self.layout.root), folder.relative_to(self.layout.root), judgement)
        found = _judged(made, made.cases[0], judgement)
        return replace(found, detail=found.detail and f"a model of version {version} runs no more: {found.detail}")

    def _specs(self) -> Iterator[OpSpec]:
        """Yield the declarations whose nodes may stand in a model: the operator's own, and of those that it uses."""
        yield self.operator.spec
        for name in self.operator.spec.uses:
            yield load_operator(self.layout, name).spec

    def _runtime(self) -> Runtime:
        """Return ONNX Runtime with the operator's library, or without where no kernel of ours computes."""
        spec = self.operator.spec
        ours = self.lowering == "custom" and spec.runtime == "kernel"
        return Runtime(self.layout.ort_library(spec.name) if ours else None, sanitized=self.layout.sanitized)

    def _model(self, model: Model, path: Path, setting: Setting) -> Iterator[CaseResult]:
        """Yield the results of a model's cases. What keeps the model from running fails all of them."""
        name = self.operator.name
        folders = [self.layout.data(name, model.name, index) for index in range(len(model.cases))]
        said = self._manifest.get(model.name, {})
        if reason := model.unsupported and str(said.get("refused", "")):
            yield from (_unsupported(model, case, reason) for case in self._asked(model))
            return
        try:
            aside.at(f"model {model.name}")
            trial = Trial(path, name=name, runtime=setting.runtime, operators=setting.operators)
            dataset.link(path.parent, folders)
        except VerifyError as error:
            yield from (_not_run(model, case, error, self.cell) for case in self._asked(model))
            return
        if declared := unreadable(self.cell):
            yield from (_read_after_all(model, case, declared) for case in self._asked(model))
            return
        found = {case.name: _read(folder) for case, folder in zip(model.cases, folders, strict=True)}
        # Of what ONNX Runtime computes itself, nothing is ours that threads could share.
        shared = self.first and setting.runtime.library
        ours = {name: data for name, data in found.items() if shared and isinstance(data, DataSet)}
        crowd = trial.crowded(ours)
        for case in self._asked(model):
            data = found[case.name]
            try:
                if isinstance(data, DataError):
                    raise data
                aside.at(f"case {case.name}")
                evidence = trial.evidence(data, setting.tolerances)
            except (VerifyError, DataError) as error:
                yield _not_run(model, case, error, self.cell)
                continue
            judgement = judge(replace(evidence, crowd=crowd.get(case.name, ""), dropped=self._dropped(model, said)))
            if self.only:
                folder = folders[model.cases.index(case)]
                _tell(path.relative_to(self.layout.root), folder.relative_to(self.layout.root), judgement)
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

    def _dropped(self, model: Model, said: Mapping[str, Any]) -> str:
        """Return what to say of attributes that the lowering took no notice of, or nothing."""
        if not (names := said.get("dropped")):
            return ""
        set_to = " and ".join(
            f"{name!r}, which model {model.name!r} sets to {model.attributes[name]!r}" for name in names
        )
        return (
            f"the lowering drops {set_to}: it emits the nodes of the default. Emit what computes it, or refuse it: "
            f"g.unsupported() in ops/{self.operator.name}/lowering.py, and `unsupported` in the model"
        )

    def _asked(self, model: Model) -> list[Case]:
        return [case for case in model.cases if self.only in (None, case.name)]


def _read(folder: Path) -> DataSet | DataError:
    try:
        return dataset.read(folder)
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
    if isinstance(error, TooNewError) and (declared := unreadable(cell)):
        return CaseResult(case=case.name, model=model.name, outcome="unsupported", detail=declared)
    if model.unsupported and isinstance(error, RefusedError):
        return _unsupported(model, case, f"ONNX Runtime: {error}")
    return CaseResult(case=case.name, model=model.name, outcome="failed", detail=str(error))


def _read_after_all(model: Model, case: Case, declared: str) -> CaseResult:
    detail = f"pipeline/matrix.py says that {declared}, but it does. Measure it anew with `doit probe`"
    return CaseResult(case=case.name, model=model.name, outcome="failed", detail=detail)


def _unsupported(model: Model, case: Case, said: str) -> CaseResult:
    detail = f"{model.unsupported} ({said})"
    return CaseResult(case=case.name, model=model.name, outcome="unsupported", detail=detail)


def _judged(model: Model, case: Case, judgement: Judgement) -> CaseResult:
    if model.unsupported:
        detail = f"declared unsupported ({model.unsupported}), but it runs. Remove `unsupported` from its model"
        return CaseResult(case=case.name, model=model.name, outcome="failed", detail=detail)
    found = [r.comparison for r in judgement.runs]
    if any(c.problem for c in found):  # of another dtype or shape: there is no error to be told
        return CaseResult(case=case.name, model=model.name, outcome="mismatched", detail=judgement.detail)
    return CaseResult(
        case=case.name,
        model=model.name,
        outcome="mismatched" if judgement.detail else "verified",
        error=_finite(max(c.error for c in found)),
        ulp=_finite(max(c.ulp for c in found)),
        limit=_finite(max(c.share for c in found)),
        detail=judgement.detail,
    )


def _finite(number: float) -> float | None:
    """Return a number that JSON can hold; what is infinite is told in the detail."""
    return number if math.isfinite(number) else None


def _verdict(bench: Bench, results: Sequence[CaseResult], detail: str) -> Verdict:
    wrong = [r for r in results if r.outcome in WRONG]
    outcome: Outcome = "verified"
    if detail or wrong:
        outcome = "failed" if detail or any(r.outcome == "failed" for r in wrong) else "mismatched"
    elif results and all(r.outcome == "unsupported" for r in results):
        outcome, detail = "unsupported", results[0].detail
    if wrong:
        detail = f"{len(wrong)} of {len(results)} cases; {wrong[0].case}: {wrong[0].detail}"
    return Verdict(
        op=bench.operator.name,
        lowering=bench.lowering,
        cell=str(bench.cell),
        outcome=outcome,
        detail=detail,
        cases=tuple(results),
    )


def _messages(found: Verdict) -> dict[str, str]:
    """Return one line per fault, by the names of its cases: those that share one are told together."""
    faults: dict[str, list[str]] = {}
    for result in found.cases:
        if result.outcome in WRONG:
            faults.setdefault(result.detail, []).append(result.case)
    if not faults:
        return {"": f"{found}: {found.detail}"}
    told = {}
    for detail, (case, *others) in faults.items():
        also = f" Also {', '.join(others)}." if others else ""
        told[", ".join([case, *others])] = f"{found.case_name(case)}: {detail}.{also} Replay: {found.replay(case)}"
    return told


def _tell(model: Path, data: Path, judgement: Judgement) -> None:
    """Print how a replayed case went: what each run gave, and how near to the limit it came."""
    print(f"model {model}\ndata  {data}")
    for run in judgement.runs:
        c = run.comparison
        print(f"  {run.name + ':':<22} {c}; error {c.error:.2g}, {c.ulp:.3g} ULP, {percent(c.share)} of the limit")
    print(f"  reference evaluator:   {judgement.oracle}")
    if not judgement.detail:
        print("verified")
