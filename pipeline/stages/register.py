"""Prove the compiled torch library: what it registers ("schema"), and what it computes ("kernel").

The first part follows from bindings and declaration alone, so that an edit of a kernel repeats only the second.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import torch

from pipeline.data.dataset import read
from pipeline.errors import RegisterError
from pipeline.files import write_text
from pipeline.layout import Layout
from pipeline.library import torch_library
from pipeline.library.kernel_check import CaseCheck, check_case
from pipeline.library.torch_call import torch_minor
from pipeline.load import Operator


def run(layout: Layout, operator: Operator, *, part: Literal["schema", "kernel"]) -> None:
    """Prove one part and write its manifest. Raises RegisterError with everything that disagrees."""
    overload = torch_library.load(layout, operator)
    results = (_schema if part == "schema" else _kernel)(layout, operator, overload)
    manifest = {"op": operator.name, "part": part, "torch": torch.__version__, "schema": str(overload._schema)}
    path = layout.registered(operator.name, part, torch=torch_minor())
    write_text(path, json.dumps(manifest | {"results": results}, indent=1) + "\n")


def _schema(layout: Layout, operator: Operator, overload: Any) -> list[dict[str, Any]]:
    # The exporters take 0.7 CPU s to import, which the other part must not pay.
    from pipeline.library import schema_check

    return schema_check.results(layout, operator, overload)


def _kernel(layout: Layout, operator: Operator, overload: Any) -> list[dict[str, Any]]:
    results, problems = [], []
    for model in operator.models:
        for index, case in enumerate(model.cases):
            data = read(layout.data(operator.name, model.name, index))
            check = CaseCheck(spec=operator.spec, model=model, case=case, data=data, overload=overload)
            found, result = check_case(check)
            problems += found
            results.append({"model": model.name, "case": case.name, **result})
    if problems:
        raise RegisterError("\n".join(problems))
    return results
