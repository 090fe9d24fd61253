"""Send a tensor of each dtype from one custom op of ONNX Runtime to another, and take one as input of a model."""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from onnx import TensorProto, helper

from opmatrix.errors import ProbeError, VerifyError
from opmatrix.matrix.cells import ir_version
from opmatrix.matrix.dtypes import SINCE, Column, element_name
from opmatrix.ort_checks.sessions import OrtSessions, Session, call
from opmatrix.project.paths import Paths
from opmatrix.toolchain import ort_headers
from opmatrix.toolchain.find_tools import find_compiler

SOURCE = Path(__file__).with_name("dtype_probe.cc")
_DOMAIN, _OPSET = "opmatrix.probe", 17
_BYTES = np.arange(65, 97, dtype=np.uint8)  # a whole number of elements of every dtype; as strings, letters


def measure(layout: Paths) -> dict[str, dict[Column, str]]:
    """Return why the running ONNX Runtime does not carry a dtype, by dtype and column; "" where it does."""
    with TemporaryDirectory() as folder:
        library = _compiled(layout, Path(folder))
        return {dtype: _measure(dtype, library) for dtype in SINCE}


def _compiled(layout: Paths, folder: Path) -> Path:
    made = folder / "dtype_probe.so"
    command = [
        *find_compiler(os.environ), "-std=c++20", "-shared", "-fPIC", "-I", str(ort_headers.recorded(layout)["path"]),
        str(SOURCE), "-o", str(made),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise ProbeError(f"$ {shlex.join(command)}\n{done.stdout}")
    return made


def _measure(dtype: str, library: Path) -> dict[Column, str]:
    element = TensorProto.DataType.Value(element_name(dtype))
    bits = {"string": 8, "int4": 4, "uint4": 4}.get(dtype) or 8 * helper.tensor_dtype_to_np_dtype(element).itemsize
    os.environ |= {"PROBED_ELEMENT_TYPE": str(element), "PROBED_ELEMENT_BITS": str(bits)}
    return {
        "node": _raised(lambda: _taken(element, library)),
        "ort": _raised(lambda: _carried(library)),
    }


def _raised(attempt: Callable[[], str]) -> str:
    """Return what an attempt returns or raises, in a line."""
    try:
        with redirect_stdout(io.StringIO()):  # ONNX Runtime's Python prints that it tries again
            return attempt()
    except VerifyError as error:
        (line, *_) = str(error).strip().splitlines() or [""]
        return line


def _taken(element: int, library: Path) -> str:
    """Load a model whose input has the element type."""
    _session(library, element, "ToBytes")
    return ""


def _carried(library: Path) -> str:
    session = _session(library, TensorProto.UINT8, "FromBytes", "ToBytes")
    (found,) = call(session, {"x0": _BYTES})
    return "" if np.array_equal(found, _BYTES) else "the values differ"


def _session(library: Path, element: int, *op_types: str) -> Session:
    """Return the session of a model of nodes in a row, whose input has an element type and whose output is uint8."""
    nodes = [helper.make_node(op_type, [f"x{n}"], [f"x{n + 1}"], domain=_DOMAIN) for n, op_type in enumerate(op_types)]
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info("x0", element, ["N"])],
        [helper.make_tensor_value_info(f"x{len(nodes)}", TensorProto.UINT8, ["M"])],
    )
    opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version("node", _OPSET))
    return OrtSessions(library).sessions(model.SerializeToString(), settings=["optimised"])["optimised"]
