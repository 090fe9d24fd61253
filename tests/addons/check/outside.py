"""Start `opmatrix check` in a folder without a project, and models for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.incremental.conftest import hear_interrupts
from tests.support.projects import ROOT

F, I32 = TensorProto.FLOAT, TensorProto.INT32


def model(
    *nodes: NodeProto, element: int = F, opset: int = 18, shape: list[Any] | None = None, **held: Any
) -> ModelProto:
    x = helper.make_tensor_value_info("x", element, ["N", 4] if shape is None else shape)
    y = helper.make_tensor_value_info("y", element, None)
    constants = [numpy_helper.from_array(np.asarray(v), n) for n, v in held.items()]
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("acme", 1)]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], constants), opset_imports=imports, ir_version=8)


def node(op_type: str, *inputs: str, output: str = "y", **attributes: Any) -> NodeProto:
    return helper.make_node(op_type, inputs, [output], f"{op_type}_{output}", **attributes)


def check(folder: Path, *words: str) -> tuple[int, str]:
    """Return the exit code and the output of `opmatrix check` in a folder without a project."""
    process = started(folder, *words)
    try:
        output, errors = process.communicate()
    finally:
        process.kill()
    return process.returncode, output + errors


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    """Start `opmatrix check` in a folder without a project."""
    program = "import sys; from opmatrix.commands.main import main; sys.exit(main())"
    environment = os.environ | {"NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", "TMPDIR": str(folder)}
    # Torch must not be needed: its import fails here.
    (blocked := folder.parent / f"{folder.name}-blocked").mkdir(exist_ok=True)
    (blocked / "torch.py").write_text("raise ImportError('torch is not needed')")
    paths = [str(blocked), str(ROOT / "pipeline"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    return subprocess.Popen(
        [sys.executable, "-c", program, "check", *words],
        cwd=folder, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=hear_interrupts,
    )  # fmt: skip


def _endless() -> ModelProto:
    """Return a model with a loop that ONNX Runtime would run for ages."""
    values = {
        "i": (TensorProto.INT64, []), "c": (TensorProto.BOOL, []), "v": (F, ["N", 4]),
        "c_next": (TensorProto.BOOL, []), "v_next": (F, ["N", 4]),
    }  # fmt: skip
    made = [helper.make_tensor_value_info(name, *of) for name, of in values.items()]
    again = [node("Identity", "c", output="c_next"), node("Identity", "v", output="v_next")]
    body = helper.make_graph(again, "body", made[:3], made[3:])
    return model(node("Loop", "often", "true", "x", body=body), often=np.int64(2**62), true=np.bool_(True))


# At 71b51ad8 neither had an outcome after 60 s, and a right model that was checked along with ENDLESS had no line.
ENDLESS = _endless()
EXPLODING = model(node("Expand", "x", "sizes"), shape=[1, 1], sizes=np.int64([2**17, 2**15]))
RIGHT = model(node("Relu", "x"))
