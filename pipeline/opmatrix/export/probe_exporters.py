"""Export a tiny model at every opset, to see which ones an exporter really writes. Needs torch and onnx."""

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

# More at either end than any exporter was seen to write, but where nothing can be measured. Below 7, which torch names
# its oldest (ONNX_MIN_OPSET), the legacy exporter does not refuse. Above 25 it hangs on the model whether the dynamo
# exporter writes what was asked for, with other models in each torch: no row claims those.
OPSETS: Mapping[Exporter, range] = {"legacy": range(7, 26), "dynamo": range(16, 26)}
_DOMAIN = "opmatrix.probe"
_LABEL = re.compile(r"highest opset version supported is|is not supported\. by 'torch\.onnx\.export")


def measure() -> Iterator[Export]:
    """Yield one try for each exporter and opset. The model has a node of a domain of its own, as ours have."""
    # torch's own functions for libraries are untyped.
    library = torch.library.Library("opmatrix_probe", "DEF")  # type: ignore[no-untyped-call]
    library.define("tiny(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]
    for kind in ("CPU", "Meta"):
        library.impl("tiny", torch.clone, kind)  # type: ignore[no-untyped-call]
    for exporter, opsets in OPSETS.items():
        for opset in opsets:
            yield _try(exporter, opset)
    del library  # the operator lives as long as it does


def _try(exporter: Exporter, opset: int) -> Export:
    with collected() as said:
        try:
            proto = _EXPORTERS[exporter](opset)
        except Exception as error:  # whatever an exporter raises where it cannot
            return Export(exporter=exporter, opset=opset, wrong=f"it raised {type(error).__name__}: {_line(error)}")
    (found,) = [imported.version for imported in proto.opset_import if not imported.domain]
    if found != opset:
        return Export(exporter=exporter, opset=opset, wrong=f"it wrote opset {found}")
    return Export(exporter=exporter, opset=opset, ir=proto.ir_version, label=any(_LABEL.search(text) for text in said))


class _Tiny(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = torch.relu(torch.ops.opmatrix_probe.tiny(x))
        return y


class _Changing(_Tiny):
    """With an operator that ONNX changed in opset 18 (ReduceMean). The dynamo exporter writes opset 18 and
    has that converted to others, which works, or is silently left out, by what is in a model."""

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


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0]
