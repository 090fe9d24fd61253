"""Run an operator beyond eager mode: in torch.compile, AOTInductor, torch.vmap, torch.autocast and torch.func.

Left out of `doit`, since a cold compilation takes seconds; `doit compat OPERATOR` runs it.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from opmatrix import verdict
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import has_torch_library
from opmatrix.errors import CompatError, OpmatrixError
from opmatrix.export.generated_modules import load_generated
from opmatrix.project.paths import Paths
from opmatrix.torch_checks.opcheck_samples import serve
from opmatrix.torch_library import features, load_library, transforms, user_python
from opmatrix.torch_library.call import torch_minor
from opmatrix.verdict import CheckRecord

if TYPE_CHECKING:
    from opmatrix.torch_checks.compat import Row


def run(layout: Paths, operator: Operator, **_: object) -> None:
    """Run every row and write the record. Raises CompatError if one has failed."""
    path = layout.compat_record(operator.name, torch=torch_minor())
    record = CheckRecord(op=operator.name, check="compat", torch=torch_minor(), outcome="failed")
    if not features.BATCHING.available:
        skipped = features.BATCHING.skip_reason
        verdict.write(path, replace(record, outcome="unsupported", detail=skipped.removeprefix("skipped: ")))
        return
    if not operator.spec.torch or operator.spec.torch.overrides:
        why = "torch has its own operator" if operator.spec.torch else "torch does not have this operator"
        raise CompatError(f"{operator.name}: {why}, and `compat` runs the operators that a project defines in torch")
    try:
        rows = _rows(layout, operator)
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


def _rows(layout: Paths, operator: Operator) -> list[Row]:
    from opmatrix.torch_checks import compat  # which torch 1.13 and 2.0 cannot import

    loaded = load_library.load(layout, operator)
    if operator.spec.torch and not operator.spec.torch.python:
        load_generated(layout, operator.name).fake.register_fake()
    gradient = user_python.gradient(layout, operator.spec)
    if gradient and gradient.operator:
        serve(layout, gradient)
        transforms.register_rules(gradient.operator.spec)
    library = load_library.library_path(layout, operator) if has_torch_library(operator.spec) else None
    prepared = compat.prepare(operator, loaded.overload, gradient, library=library)
    with tempfile.TemporaryDirectory() as cache:  # torch compiles anew: what it kept may be of another operator
        os.environ |= {"TORCHINDUCTOR_CACHE_DIR": cache, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
        return [*compat.rows(prepared)]
