"""A lowering that ignores an argument: the exported model computes something else than the operator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.projects import Project

pytestmark = [pytest.mark.torch, pytest.mark.ort]

REFUSAL = """    if approximate != "none":
        g.unsupported(
            f"com.microsoft::Gelu has the exact formula alone, and approximate={approximate!r} is another one"
        )
"""
CELLS = [f"torch2.13-{exporter}-opset18" for exporter in ("legacy", "dynamo")]


def test_the_verdict_names_the_argument_that_the_lowering_ignores(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=("gelu",))
    project.replace("ops/gelu/lowering.py", REFUSAL, "")
    cases = project.paths.cases("gelu")
    lines = [line for line in cases.read_text().splitlines() if "unsupported=" not in line or "tanh" not in line]
    cases.write_text("\n".join(lines) + '\nMODELS = tuple(m for m in MODELS if m.types["T"] == "float32")\n')
    done = project.doit("export", "verify", "report", "opsets=18")
    assert done.returncode == 1, done.stdout
    records = project.records()
    assert len(records) == 2
    for cell in CELLS:
        record = records[f"gelu-custom@{cell}-ort1.31"]
        assert [c["case"] for c in record["cases"] if c["outcome"] == "mismatched"] == ["tanh"]
        assert (
            "The reference evaluator agrees with ONNX Runtime: the lowering drops 'approximate', which model 'tanh' "
            "sets to 'tanh': it emits the nodes of the default. Emit what computes it, or refuse it: "
            "g.unsupported() in ops/gelu/lowering.py, and `unsupported` in the model"
        ) in record["detail"]
        manifest = json.loads((project.root / f"build/export/gelu/custom/{cell}/export.json").read_text())
        dropped = {name: model["dropped"] for name, model in manifest["models"].items() if "dropped" in model}
        assert dropped == {"tanh": ["approximate"]}
