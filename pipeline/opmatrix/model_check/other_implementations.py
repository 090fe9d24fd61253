"""What other implementations compute of a model that ONNX Runtime refuses. Never imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from opmatrix.errors import OpmatrixError
from opmatrix.model_check.external_data import load
from opmatrix.model_check.inline_functions import inline
from opmatrix.model_check.model_inputs import ModelInputs
from opmatrix.model_check.node_values import inner_values
from opmatrix.model_check.run_model import compare_value
from opmatrix.ort_checks.reference_evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.spec import OpSpec, Tolerance

_MOST = 200  # nodes of a model that onnx.reference evaluates as a whole
Outputs = Mapping[str, Any]


def agreeing(
    path: Path, fed: ModelInputs, runtime: OrtSessions, operators: Sequence[OpSpec], limits: Mapping[str, Tolerance]
) -> list[str]:
    """Return two sources of all outputs that agree, none of them ONNX Runtime with the model as it is; [] if there are
    none. Raises VerifyError where the model cannot be loaded."""
    model = load(path)
    names = [output.name for output in model.graph.output]
    known = fed.expected.keys() >= {*names}
    if not (known or model.functions) or len(model.graph.node) > _MOST:
        return []
    found = list(_computed(model, names, fed, runtime, operators))
    if known:
        found.append((fed.source.removeprefix("from "), fed.expected))
    for at, (first, ours) in enumerate(found):
        for second, theirs in found[at + 1 :]:
            if all(compare_value(name, ours[name], theirs[name], limits).ok for name in names):
                return [first, second]
    return []


def _computed(
    model: ModelProto, names: Sequence[str], fed: ModelInputs, runtime: OrtSessions, operators: Sequence[OpSpec]
) -> Iterator[tuple[str, Outputs]]:
    inlined = inline(model, operators).model
    for found in (model, inlined) if model.functions else (model,):
        with suppress(OpmatrixError):
            values = call(ReferenceRun(found, ()), fed.inputs)
            yield "onnx.reference", {n: _value(v) for n, v in zip(names, values, strict=True)}
            break
    if model.functions:
        with suppress(OpmatrixError):
            yield "ONNX Runtime with the functions inlined", inner_values(inlined, names, fed.inputs, runtime)


def _value(value: Any) -> Any:
    return value if isinstance(value, list | dict) or value is None else np.asarray(value)
