"""Measure which opsets the exporters of the running torch write, and which dtypes it and they carry: export a tiny
model at every opset, and send a tensor of each dtype through an operator in C++ over torch's headers, another one over
its stable ABI, and both exporters. Needs torch, onnx and a C++ compiler.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import onnx
import onnxscript
import torch
from onnx import TensorProto, defs
from torch.onnx import utils

from opmatrix.basics.errors import ProbeError
from opmatrix.basics.files import write_text
from opmatrix.basics.version import older
from opmatrix.export import legacy_exporter
from opmatrix.export.exporter_warnings import collected
from opmatrix.project.cells import Exporter
from opmatrix.project.dtypes import SINCE, Column, element_name
from opmatrix.project.measured import Export, source, torch_row
from opmatrix.project.paths import Paths
from opmatrix.toolchain.find import find_compiler
from opmatrix.toolchain.headers import TorchBuild
from opmatrix.torch_ops.call import torch_minor

Abi = Literal["classic", "stable"]

SOURCE = Path(__file__).with_name("dtype_probe.cc")
_DOMAIN, _SPACE = "opmatrix.probe", "opmatrix_probe"
_OPSETS: Mapping[Exporter, int] = {"legacy": 17, "dynamo": 18}  # which every torch with the exporter writes
_STABLE = "2.9"  # the first torch whose stable ABI the bindings use


@cache
def _library() -> torch.library.Library:
    """Define the operator ``tiny``, once for this process: the library that is returned keeps it alive."""
    library = torch.library.Library(_SPACE, "DEF")  # type: ignore[no-untyped-call]  # torch has no types for it
    library.define("tiny(Tensor x) -> Tensor")  # type: ignore[no-untyped-call]  # as above
    for kind in ("CPU", "Meta"):
        library.impl("tiny", torch.clone, kind)  # type: ignore[no-untyped-call]  # as above
    return library


def measure_dtypes(paths: Paths) -> dict[str, dict[Column, str]]:
    """Return why the running torch does not carry a dtype, by dtype and column; "" where it does."""
    abis: tuple[Abi, ...] = ("classic",) if older(torch.__version__, _STABLE) else ("classic", "stable")
    _library()
    with TemporaryDirectory() as folder:
        bindings = {abi: _compiled(paths, Path(folder), abi) for abi in abis}
        return {dtype: _measure(dtype, bindings) for dtype in SINCE}


def _compiled(paths: Paths, folder: Path, abi: Abi) -> Any:
    """Return the operator, compiled with the binding's headers for one ABI of the running torch."""
    root = Path(torch.__file__).parent
    build = TorchBuild(
        version=torch.__version__, include=root / "include", openmp=None, cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI
    )
    made, runtime = folder / f"{abi}.so", folder / "runtime.o"
    common = [*find_compiler(os.environ), "-fPIC", "-w", f"-I{paths.binding}", f"-I{paths.include}"]
    _compile([*common, "-std=c++20", "-c", str(paths.binding / "runtime.cc"), "-o", str(runtime)])
    flags = ["-std=c++20"]
    if abi == "classic":
        flags = [f"-std={build.standard}", f"-D_GLIBCXX_USE_CXX11_ABI={int(build.cxx11_abi)}"]
        flags += [word for include in build.includes for word in ("-isystem", str(include))]
    space = f"{_SPACE}_{abi}"
    flags += [f'-DPROBE_SPACE="{space}"', f"-I{paths.binding / abi}", "-shared"]
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
        "legacy": _raised(lambda: _exported("legacy", dtype)),
        "dynamo": _raised(lambda: _exported("dynamo", dtype)),
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


def _exported(exporter: Exporter, dtype: str) -> str:
    graph = _EXPORTERS[exporter](_Tiny(), _tensor(dtype), _OPSETS[exporter], [*SINCE]).graph
    found = [TensorProto.DataType.Name(v.type.tensor_type.elem_type) for v in (*graph.input, *graph.output)]
    return "" if found == [element_name(dtype)] * 2 else f"it wrote {' and '.join(found)}"


class _Tiny(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = getattr(torch.ops, _SPACE).tiny(x)
        return y


class _Positive(_Tiny):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(super().forward(x))


class _Changing(_Positive):
    """With an operator that ONNX changed in opset 18 (ReduceMean). The dynamo exporter writes opset 18 and converts it,
    which for some models it silently does not do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).mean(dim=1)


def _legacy(module: _Tiny, x: torch.Tensor, opset: int, dtypes: Sequence[str]) -> onnx.ModelProto:
    file, name = io.BytesIO(), f"{_SPACE}::tiny"
    utils.register_custom_op_symbolic(name, lambda g, x: g.op(f"{_DOMAIN}::Tiny", x).setType(x.type()), opset)
    try:
        torch.onnx.export(
            module.eval(),
            (x,),
            file,  # type: ignore[arg-type]  # the legacy exporter writes to a file object as well
            opset_version=opset,
            custom_opsets={_DOMAIN: 1},
            **legacy_exporter.exporter_choice(),
        )
    finally:
        utils.unregister_custom_op_symbolic(name, opset)
    return onnx.load_model_from_string(file.getvalue())


def _dynamo(module: _Tiny, x: torch.Tensor, opset: int, dtypes: Sequence[str]) -> onnx.ModelProto:
    schema = defs.OpSchema(
        "Tiny",
        _DOMAIN,
        1,
        inputs=[defs.OpSchema.FormalParameter("x", "T")],
        outputs=[defs.OpSchema.FormalParameter("y", "T")],
        type_constraints=[("T", [f"tensor({element_name(dtype).lower()})" for dtype in dtypes], "")],
    )
    node = onnxscript.values.Op(onnxscript.values.Opset(_DOMAIN, 1), "Tiny", schema)

    def tiny(x: Any) -> Any:
        return node(x)

    program = torch.onnx.export(
        module.eval(),
        (x,),
        dynamo=True,
        opset_version=opset,
        custom_translation_table={getattr(torch.ops, _SPACE).tiny.default: tiny},
        external_data=False,
        verbose=False,
    )
    if program is None:
        raise TypeError("it returned nothing")
    return program.model_proto


_EXPORTERS: Mapping[Exporter, Callable[[_Tiny, torch.Tensor, int, Sequence[str]], onnx.ModelProto]] = {
    "legacy": _legacy, "dynamo": _dynamo
}  # fmt: skip


# More at either end than any exporter supports, except where a probe proves nothing: the legacy exporter accepts opsets
# below 7, the oldest that torch supports (ONNX_MIN_OPSET); above 25 it depends on the model whether the dynamo exporter
# writes the requested opset, in each torch for other models. No row claims those.
OPSETS: Mapping[Exporter, range] = {"legacy": range(7, 26), "dynamo": range(16, 26)}
_LABEL = re.compile(r"highest opset version supported is|is not supported\. by 'torch\.onnx\.export")


def measure_opsets() -> Iterator[Export]:
    """Yield the result for each exporter and opset. The model has a custom node, as the exported ones have."""
    _library()
    for exporter, opsets in OPSETS.items():
        for opset in opsets:
            yield _try(exporter, opset)


def _try(exporter: Exporter, opset: int) -> Export:
    with collected() as warned:
        try:
            module = _Positive() if exporter == "legacy" else _Changing()
            proto = _EXPORTERS[exporter](module, torch.zeros(2, 3), opset, ["float32"])
        except Exception as error:  # an exporter may raise anything
            (line, *_) = str(error).strip().splitlines() or [""]
            return Export(exporter=exporter, opset=opset, wrong=f"it raised {type(error).__name__}: {line}")
    (found,) = [imported.version for imported in proto.opset_import if not imported.domain]
    if found != opset:
        return Export(exporter=exporter, opset=opset, wrong=f"it wrote opset {found}")
    label = any(_LABEL.search(text) for text in warned)
    return Export(exporter=exporter, opset=opset, ir=proto.ir_version, label=label)


def run(paths: Paths) -> None:
    """Write the result of each export, and why a dtype is not carried."""
    version, found = torch_minor(), list(measure_opsets())
    name = f"torch{version}"
    write_text(paths.probe_result(f"{name}-dtypes"), json.dumps(measure_dtypes(paths), indent=1) + "\n")
    write_text(paths.probe_result(name), json.dumps([asdict(one) for one in found], indent=1) + "\n")
    print(f"torch {source(version, torch_row(found))}")
