"""Send a tensor of each dtype through the running torch: through an operator in C++ over its headers, another one over
its stable ABI, and both exporters. Needs torch, onnx and a C++ compiler."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx
import onnxscript
import torch
from onnx import TensorProto, defs
from torch.onnx import utils

from opmatrix.errors import ProbeError
from opmatrix.export import legacy_exporter
from opmatrix.export.exporter_warnings import collected
from opmatrix.matrix.dtypes import SINCE, Column, element_name
from opmatrix.project.paths import Paths
from opmatrix.toolchain.find_tools import find_compiler
from opmatrix.toolchain.torch_headers import TorchBuild
from opmatrix.version import older

Abi = Literal["classic", "stable"]

SOURCE = Path(__file__).with_name("dtype_probe.cc")
_DOMAIN, _SPACE = "opmatrix.probe", "opmatrix_probe_dtypes"
_LEGACY_OPSET, _DYNAMO_OPSET = 17, 18  # which every torch with the exporter writes
_STABLE = "2.9"  # the first torch whose stable ABI the bindings use


def measure(layout: Paths) -> dict[str, dict[Column, str]]:
    """Return why the running torch does not carry a dtype, by dtype and column; "" where it does."""
    library = torch.library.Library(_SPACE, "DEF")  # type: ignore[no-untyped-call]  # torch has no types for it
    library.define("tiny(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]  # as above
    for kind in ("CPU", "Meta"):
        library.impl("tiny", torch.clone, kind)  # type: ignore[no-untyped-call]  # as above
    abis: tuple[Abi, ...] = ("classic",) if older(torch.__version__, _STABLE) else ("classic", "stable")
    with TemporaryDirectory() as folder:
        bindings = {abi: _compiled(layout, Path(folder), abi) for abi in abis}
        found = {dtype: _measure(dtype, bindings) for dtype in SINCE}
    del library  # it keeps the operator alive
    return found


def _compiled(layout: Paths, folder: Path, abi: Abi) -> Any:
    """Return the operator, compiled with the binding's headers for one ABI of the running torch."""
    root = Path(torch.__file__).parent
    build = TorchBuild(
        version=torch.__version__, include=root / "include", openmp=None, cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI
    )
    made, runtime = folder / f"{abi}.so", folder / "runtime.o"
    common = [*find_compiler(os.environ), "-fPIC", "-w", f"-I{layout.binding}", f"-I{layout.include}"]
    _compile([*common, "-std=c++20", "-c", str(layout.binding / "runtime.cc"), "-o", str(runtime)])
    flags = ["-std=c++20"]
    if abi == "classic":
        flags = [f"-std={build.standard}", f"-D_GLIBCXX_USE_CXX11_ABI={int(build.cxx11_abi)}"]
        flags += [word for include in build.includes for word in ("-isystem", str(include))]
    space = f"{_SPACE}_{abi}"
    flags += [f'-DPROBE_SPACE="{space}"', f"-I{layout.binding / abi}", "-shared"]
    _compile([*common, *flags, str(SOURCE), str(runtime), *map(str, build.libraries), "-o", str(made)])
    torch.ops.load_library(str(made))  # type: ignore[no-untyped-call]  # torch has no types for it
    return getattr(torch.ops, space).copy


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise ProbeError(f"$ {shlex.join(command)}\n{done.stdout}")


def _measure(dtype: str, bindings: Mapping[Abi, Any]) -> dict[Column, str]:
    if why := _raised(lambda: _through_operator(dtype, lambda x, _: x.clone())):  # a tensor of it cannot be copied
        return {"torch": why, "stable": why, "legacy": why, "dynamo": why}
    too_old = f"needs torch {_STABLE}"
    return {
        "torch": _raised(lambda: _through_operator(dtype, bindings["classic"])),
        "stable": _raised(lambda: _through_operator(dtype, bindings["stable"])) if "stable" in bindings else too_old,
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


def _through_operator(dtype: str, operator: Callable[[torch.Tensor, int], torch.Tensor]) -> str:
    x = _tensor(dtype)
    y = operator(x, x.numel() * x.element_size())
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
