"""Start `opmatrix check` in a folder without a project, and models for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from onnx import ModelProto, parser

from tests.incremental.conftest import hear_interrupts
from tests.support.projects import ROOT


def model(nodes: str, constants: str = "", *, inputs: str = "float[N,4] x", output: str = "float[] y") -> ModelProto:
    imports = 'ir_version: 8, opset_import: ["": 18, "acme": 1]'
    return parser.parse_model(f"<{imports}> g ({inputs}) => ({output}) <{constants}> {{ {nodes} }}")


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


# At 71b51ad8 it had no outcome after 60 s, and a right model that was checked along with it had no line.
ENDLESS = model(
    "y = Loop <body = b (int64 i, bool c, float[N,4] v) => (bool d, float[N,4] w) {d = Identity (c) w = Identity (v)}>"
    " (often, true, x)",
    "int64 often = {4611686018427387904}, bool true = {1}",
)
RIGHT = model("y = Relu (x)")
