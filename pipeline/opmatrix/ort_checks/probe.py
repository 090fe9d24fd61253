"""Measure which IR versions and opsets the running ONNX Runtime reads, and which dtypes it carries: from one custom op
to another, and as input of a model."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, parser

from opmatrix.basics.errors import ProbeError, VerifyError
from opmatrix.basics.files import write_text
from opmatrix.basics.version import minor
from opmatrix.ort_checks.sessions import OrtSessions, RefusedError, Session, call
from opmatrix.project.cells import Ort, ir_version
from opmatrix.project.dtypes import SINCE, Column, element_name
from opmatrix.project.measured import source
from opmatrix.project.paths import Paths
from opmatrix.toolchain.find import find_compiler
from opmatrix.toolchain.ort_headers import find_headers

SOURCE = Path(__file__).with_name("dtype_probe.cc")
_DOMAIN, _OPSET = "opmatrix.probe", 17
_BYTES = np.arange(65, 97, dtype=np.uint8)  # a whole number of elements of every dtype; as strings, letters


def measure() -> dict[str, dict[Column, str]]:
    """Return why the running ONNX Runtime does not carry a dtype, by dtype and column; "" where it does."""
    with TemporaryDirectory() as folder:
        library = Path(folder) / "dtype_probe.so"
        command = [
            *find_compiler(os.environ), "-std=c++20", "-shared", "-fPIC", "-I", str(find_headers(os.environ).path),
            str(SOURCE), "-o", str(library),
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise ProbeError(f"$ {shlex.join(command)}\n{done.stdout}")
        return {dtype: _measure(dtype, library) for dtype in SINCE}


def _measure(dtype: str, library: Path) -> dict[Column, str]:
    element = TensorProto.DataType.Value(element_name(dtype))
    bits = {"string": 8, "int4": 4, "uint4": 4}.get(dtype) or 8 * helper.tensor_dtype_to_np_dtype(element).itemsize
    os.environ |= {"PROBED_ELEMENT_TYPE": str(element), "PROBED_ELEMENT_BITS": str(bits)}

    def taken() -> str:
        _session(library, element, "ToBytes")
        return ""

    def carried() -> str:
        (found,) = call(_session(library, TensorProto.UINT8, "FromBytes", "ToBytes"), {"x0": _BYTES})
        return "" if np.array_equal(found, _BYTES) else "the values differ"

    return {"node": _raised(taken), "ort": _raised(carried)}


def _raised(attempt: Callable[[], str]) -> str:
    try:
        with redirect_stdout(io.StringIO()):  # ONNX Runtime's Python prints that it tries again
            return attempt()
    except VerifyError as error:
        (line, *_) = str(error).strip().splitlines() or [""]
        return line


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


_OLDEST = 7  # every supported ONNX Runtime reads this opset, in IR version 3
_TRIED = 40  # higher than any opset or IR version that an ONNX Runtime reads


def run(paths: Paths) -> None:
    """Write the newest IR version and opset that it reads, and why it does not carry a dtype."""
    version = minor(onnxruntime.__version__)
    ir = max((version for version in range(3, _TRIED) if _reads(ir=version, opset=_OLDEST)), default=0)
    opset = max((opset for opset in range(_OLDEST, _TRIED) if _reads(ir=ir, opset=opset)), default=0)
    name = f"ort{version}"
    write_text(paths.probe_result(f"{name}-dtypes"), json.dumps(measure(), indent=1) + "\n")
    write_text(paths.probe_result(name), json.dumps({"ir": ir, "opset": opset}, indent=1) + "\n")
    print(f"ONNX Runtime {source(version, Ort(ir=ir, opset=opset))}")


def _reads(*, ir: int, opset: int) -> bool:
    header = f'<ir_version: {ir}, opset_import: ["": {opset}]>'
    model = parser.parse_model(f"{header} tiny (float[2] x) => (float[2] y) {{ y = Relu(x) }}")
    try:
        OrtSessions(None).sessions(model.SerializeToString(), settings=["optimised"])
    except RefusedError:
        return False
    return True
