"""The rows of `doit compat`: an operator in torch.compile, AOTInductor, torch.vmap, torch.autocast and torch.func. Left
out of `doit`, since a cold compilation takes seconds.

Each row works, is refused with a reason that follows from the declaration, or has failed. What a row calls works is
compared with plain calls; what is refused must raise an error with the reason.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from opmatrix.basics import step_log
from opmatrix.basics.errors import CompatError, OpmatrixError, one_line
from opmatrix.declaration.load import Operator
from opmatrix.export.generated_modules import load_generated
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord
from opmatrix.signature.signature import has_torch_library, seeds, torch_qualified
from opmatrix.torch_checks import compat_compiled, compat_transforms
from opmatrix.torch_checks.case_calls import serve
from opmatrix.torch_checks.compat_samples import Compat, RefusedError, bases
from opmatrix.torch_ops import features, load, transforms
from opmatrix.torch_ops.call import torch_minor
from opmatrix.torch_ops.load import Gradient


def run(paths: Paths, operator: Operator, **_: object) -> None:
    """Run every row and write the record. Raises CompatError if one has failed."""
    path = paths.compat_record(operator.name, torch=torch_minor())
    record = CheckRecord(op=operator.name, check="compat", torch=torch_minor(), outcome="failed")
    if not features.BATCHING.available:
        skipped = features.BATCHING.skip_reason
        verdict.write(path, replace(record, outcome="unsupported", detail=skipped.removeprefix("skipped: ")))
        return
    if not operator.spec.torch or operator.spec.torch.overrides:
        why = "torch has its own operator" if operator.spec.torch else "torch does not have this operator"
        raise CompatError(f"{operator.name}: {why}, and `compat` runs the operators that a project defines in torch")
    try:
        rows = _rows(paths, operator)
    except OpmatrixError as error:
        verdict.write(path, replace(record, detail=str(error)))
        raise
    for row in rows:
        print(f"{row.name}: {row.outcome}" + (f": {row.detail}" if row.detail else ""))
    wrong = "\n".join(f"{operator.name} in {row.name}: {row.detail}" for row in rows if row.outcome == "failed")
    found = replace(record, results=tuple(asdict(row) for row in rows), detail=wrong)
    verdict.write(path, found if wrong else replace(found, outcome="verified"))
    if wrong:
        raise CompatError(wrong)


def _rows(paths: Paths, operator: Operator) -> list[Row]:
    loaded = load.load(paths, operator)
    if operator.spec.torch and not operator.spec.torch.python:
        load_generated(paths, operator.name).fake.register_fake()
    gradient = load.gradient(paths, operator.spec)
    if gradient and gradient.operator:
        serve(paths, gradient)
        transforms.register_rules(gradient.operator.spec)
    library = load.library_path(paths, operator) if has_torch_library(operator.spec) else None
    prepared = prepare(operator, gradient, library=library)
    with tempfile.TemporaryDirectory() as cache:  # torch compiles anew: what it kept may be of another operator
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        rows = [*compat_rows(prepared)]
    del loaded  # which kept a definition in Python alive
    return rows


RowOutcome = Literal["works", "refused", "failed"]
Check = Callable[[Compat], tuple[int, str]]

CHECKS: Mapping[str, Check] = {
    "torch.compile": compat_compiled.compiled,
    "AOTInductor": compat_compiled.packaged,
    "torch.vmap": compat_transforms.mapped,
    "torch.autocast": compat_transforms.autocast,
    "torch.func.grad": compat_transforms.functional,
    "torch.func.jvp": compat_transforms.forward_mode,
}
"""The rows, in the order of the report. Each check returns how many calls agree, and what they need or ""."""

GENERATOR = "torch.Generator"
"""One more row, of operators that a generator gives a seed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to run an operator. `detail`: why it is refused or wrong, or what it needs; `samples`: how many calls."""

    name: str
    outcome: RowOutcome
    detail: str = ""
    samples: int = 0


def prepare(operator: Operator, gradient: Gradient | None, library: Path | None = None) -> Compat:
    """Register what the transforms need, and choose samples. Raises CompatError where no case can be one."""
    name = torch_qualified(operator.spec)
    if gradient and not transforms.has_formula(name):
        gradient.register(name)
    transforms.register_missing_gradient(operator.spec)
    transforms.register_rules(operator.spec)
    found = bases(operator, without=gradient.without if gradient else ())
    if not found:
        raise CompatError(
            f"{operator.name}: no case that torch.compile and torch.vmap could run: add one to cases.py that has "
            "elements, at most 4096 in each tensor, and values that cases.py gives"
        )
    return Compat(operator=operator, samples=found, gradient=gradient, library=library)


def compat_rows(compat: Compat) -> Iterator[Row]:
    """Yield every row."""
    for name, check in CHECKS.items():
        step_log.now_running(name)
        yield row(name, check, compat)
    if seeds(compat.spec):
        step_log.now_running(GENERATOR)
        yield row(GENERATOR, compat_transforms.generators, compat)


def row(name: str, check: Check, compat: Compat) -> Row:
    """Run one check, which returns how many calls agree and what they need, or raises an error."""
    try:
        samples, needs = check(compat)
    except RefusedError as why:
        return Row(name=name, outcome="refused", detail=str(why))
    except Exception as error:  # torch may raise anything while it compiles or transforms
        text = str(error) if isinstance(error, CompatError) else f"{type(error).__name__}: {one_line(error)}"
        return Row(name=name, outcome="failed", detail=text)
    return Row(name=name, outcome="works", detail=needs, samples=samples)
