"""Send a tensor of each dtype through a custom operator of torch and through both exporters. Needs torch and onnx."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import onnxscript
import torch
from onnx import TensorProto, defs
from torch.onnx import utils

from opmatrix.export import legacy_exporter
from opmatrix.export.exporter_warnings import collected
from opmatrix.matrix.dtypes import SINCE, Column, element_name
from opmatrix.version import older

_DOMAIN, _SPACE = "opmatrix.probe", "opmatrix_probe_dtypes"
_LEGACY_OPSET, _DYNAMO_OPSET = 17, 18  # which every torch with the exporter writes
_STABLE = "2.9"  # the first torch whose stable ABI the bindings use


def measure() -> dict[str, dict[Column, str]]:
    """Return why the running torch does not carry a dtype, by dtype and column; "" where it does."""
    library = torch.library.Library(_SPACE, "DEF")  # type: ignore[no-untyped-call]  # torch has no types for it
    library.define("tiny(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]  # as above
    for kind in ("CPU", "Meta"):
        library.impl("tiny", torch.clone, kind)  # type: ignore[no-untyped-call]  # as above
    shims = ctypes.CDLL(str(Path(torch.__file__).parent / "lib/libtorch_cpu.so"))
    found = {dtype: _measure(dtype, shims) for dtype in SINCE}
    del library  # it keeps the operator alive
    return found


def _measure(dtype: str, shims: ctypes.CDLL) -> dict[Column, str]:
    if why := _raised(lambda: _through_operator(dtype)):
        return {"torch": why, "stable": why, "legacy": why, "dynamo": why}
    has_shim = hasattr(shims, f"aoti_torch_dtype_{dtype}")
    too_old = f"needs torch {_STABLE}" if older(torch.__version__, _STABLE) else ""
    return {
        "torch": "",
        "stable": too_old or ("" if has_shim else f"no aoti_torch_dtype_{dtype}"),
        "legacy": _raised(lambda: _exported(_legacy, dtype)),
        "dynamo": _raised(lambda: _exported(_dynamo, dtype)),
    }


def _raised(attempt: Callable[[], str]) -> str:
    """Return what an attempt returns or raises, in a line."""
    try:
        with collected():
            return attempt()
    except Exception as error:  # an exporter may raise anything
        (line, *_) = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {line}"


def _tensor(dtype: str) -> torch.Tensor:
    return torch.tensor([0, 1, 1]).to(getattr(torch, dtype))


def _through_operator(dtype: str) -> str:
    x = _tensor(dtype)
    y = getattr(torch.ops, _SPACE).tiny(x)
    same = y.dtype == x.dtype and y.view(torch.uint8).tolist() == x.view(torch.uint8).tolist()
    return "" if same else "the values differ"


def _exported(export: Callable[[torch.Tensor], onnx.ModelProto], dtype: str) -> str:
    graph = export(_tensor(dtype)).graph
    found = [TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)]
    return "" if found == [element_name(dtype)] * 2 else f"it wrote {' and '.join(found)}"


class _Tiny(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = getattr(torch.ops, _SPACE).tiny(x)
        return y


def _legacy(x: torch.Tensor) -> onnx.ModelProto:
    file, name = io.BytesIO(), f"{_SPACE}::tiny"
    utils.register_custom_op_symbolic(name, lambda g, x: g.op(f"{_DOMAIN}::Tiny", x).setType(x.type()), _LEGACY_OPSET)
    try:
        torch.onnx.export(
            _Tiny().eval(),
            (x,),
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            opset_version=_LEGACY_OPSET,
            custom_opsets={_DOMAIN: 1},
            **legacy_exporter.exporter_choice(),
        )
    finally:
        utils.unregister_custom_op_symbolic(name, _LEGACY_OPSET)
    return onnx.load_model_from_string(file.getvalue())


def _dynamo(x: torch.Tensor) -> onnx.ModelProto:
    schema = defs.OpSchema(
        "Tiny",
        _DOMAIN,
        1,
        inputs=[defs.OpSchema.FormalParameter("x", "T")],
        outputs=[defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", _types(), "")],
    )
    node = onnxscript.values.Op(onnxscript.values.Opset(_DOMAIN, 1), "Tiny", schema)

    def tiny(x: Any) -> Any:
        return node(x)

    program = torch.onnx.export(
        _Tiny().eval(),
        (x,),
        dynamo=True,
        opset_version=_DYNAMO_OPSET,
        custom_translation_table={getattr(torch.ops, _SPACE).tiny.default: tiny},
        external_data=False,
        verbose=False,
    )
    if program is None:
        raise TypeError("it returned nothing")
    return program.model_proto


def _types() -> list[str]:
    return [f"tensor({element_name(dtype).lower()})" for dtype in SINCE]
