"""Export a tiny model at every opset, to find those that an exporter supports. Needs torch and onnx."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import onnx
import onnxscript
import torch
from onnx import defs
from torch.onnx import utils

from opmatrix.export.exporter_warnings import collected
from opmatrix.matrix.cells import Exporter
from opmatrix.matrix.probe_rows import Export

# More at either end than any exporter supports, except where a probe proves nothing: the legacy exporter accepts opsets
# below 7, the oldest that torch supports (ONNX_MIN_OPSET); above 25 it depends on the model whether the dynamo exporter
# writes the requested opset, in each torch for other models. No row claims those.
OPSETS: Mapping[Exporter, range] = {"legacy": range(7, 26), "dynamo": range(16, 26)}
_DOMAIN = "opmatrix.probe"
_LABEL = re.compile(r"highest opset version supported is|is not supported\. by 'torch\.onnx\.export")


def measure() -> Iterator[Export]:
    """Yield the result for each exporter and opset. The model has a custom node, as the exported ones have."""
    # torch's own functions for libraries are untyped.
    library = torch.library.Library("opmatrix_probe", "DEF")  # type: ignore[no-untyped-call]  # torch has no types for it
    library.define("tiny(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]  # as above
    for kind in ("CPU", "Meta"):
        library.impl("tiny", torch.clone, kind)  # type: ignore[no-untyped-call]  # as above
    for exporter, opsets in OPSETS.items():
        for opset in opsets:
            yield _try(exporter, opset)
    del library  # it keeps the operator alive


def _try(exporter: Exporter, opset: int) -> Export:
    with collected() as warned:
        try:
            proto = _EXPORTERS[exporter](opset)
        except Exception as error:  # an exporter may raise anything
            (line, *_) = str(error).strip().splitlines() or [""]
            return Export(exporter=exporter, opset=opset, wrong=f"it raised {type(error).__name__}: {line}")
    (found,) = [imported.version for imported in proto.opset_import if not imported.domain]
    if found != opset:
        return Export(exporter=exporter, opset=opset, wrong=f"it wrote opset {found}")
    label = any(_LABEL.search(text) for text in warned)
    return Export(exporter=exporter, opset=opset, ir=proto.ir_version, label=label)


class _Tiny(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.relu(torch.ops.opmatrix_probe.tiny(x))
        return y


class _Changing(_Tiny):
    """With an operator that ONNX changed in opset 18 (ReduceMean). The dynamo exporter writes opset 18 and converts it,
    which for some models it silently does not do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).mean(dim=1)


def _legacy(opset: int) -> onnx.ModelProto:
    file = io.BytesIO()
    # An argument since torch 2.5, and needed since 2.9.
    chosen: dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    name = "opmatrix_probe::tiny"
    utils.register_custom_op_symbolic(name, lambda g, x: g.op(f"{_DOMAIN}::Tiny", x), opset)
    try:
        torch.onnx.export(
            _Tiny().eval(),
            (torch.zeros(2, 3),),
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            opset_version=opset,
            custom_opsets={_DOMAIN: 1},
            **chosen,
        )
    finally:
        utils.unregister_custom_op_symbolic(name, opset)
    return onnx.load_model_from_string(file.getvalue())


def _dynamo(opset: int) -> onnx.ModelProto:
    schema = defs.OpSchema(
        "Tiny",
        _DOMAIN,
        1,
        inputs=[defs.OpSchema.FormalParameter("x", "T")],
        outputs=[defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", ["tensor(float)"], "")],
    )
    node = onnxscript.values.Op(onnxscript.values.Opset(_DOMAIN, 1), "Tiny", schema)

    def tiny(x: Any) -> Any:
        return node(x)

    program = torch.onnx.export(
        _Changing().eval(),
        (torch.zeros(2, 3),),
        dynamo=True,
        opset_version=opset,
        custom_translation_table={torch.ops.opmatrix_probe.tiny.default: tiny},
        external_data=False,
        verbose=False,
    )
    if program is None:
        raise TypeError("it returned nothing")
    return program.model_proto


_EXPORTERS: Mapping[Exporter, Callable[[int], onnx.ModelProto]] = {"legacy": _legacy, "dynamo": _dynamo}
