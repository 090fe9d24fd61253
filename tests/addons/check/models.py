"""Models of several domains, and the findings that `doit check` reports for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from tests.support.projects import Project

F = TensorProto.FLOAT


def norm(x: str, y: str, **more: Any) -> NodeProto:
    attributes = {"domain": "mydomain", "epsilon": 1e-5} | more
    return helper.make_node("mygroupnorm", [x, "groups", "scale", "bias"], [y], name=f"norm_{y}", **attributes)


def one(x: str, y: str) -> NodeProto:
    return helper.make_node("CustomOpOne", [x, x], [y], name=f"one_{y}", domain="test.customop")


def two(x: str, y: str) -> NodeProto:
    return helper.make_node("CustomOpTwo", [x], [y], name=f"two_{y}", domain="test.customop")


def plain(op_type: str, x: str, y: str) -> NodeProto:
    return helper.make_node(op_type, [x], [y], name=f"{op_type}_{y}")


def model(*nodes: NodeProto, opset: int = 18, ir: int = 8) -> ModelProto:
    """Return a model from x to y."""
    x, y = (helper.make_tensor_value_info(n, F, ["N", 4, "L"]) for n in "xy")
    numbers = {"groups": [2.0], "scale": [1.0] * 4, "bias": [0.5] * 4}
    constants = [numpy_helper.from_array(np.array(v, np.float32), name) for name, v in numbers.items()]
    imports = {"": opset, "mydomain": 1, "test.customop": 1}
    return helper.make_model(
        helper.make_graph(nodes, "graph", [x], [y], constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=ir,
    )


def checked(project: Project, what: ModelProto | str, *options: str, seconds: int | None = 3600) -> tuple[int, str]:
    """Return the exit code and the whole output; stderr comes last. A model may take `seconds`; None: by default."""
    name = what if isinstance(what, str) else "model.onnx"
    if isinstance(what, ModelProto):
        onnx.save(what, project.root / name)
    limit = ["--seconds", str(seconds)] if seconds else []
    done = project.doit("check", name, *limit, *options, NO_COLOR="1", PYTHONIOENCODING="utf-8")
    return done.returncode, done.stdout + done.stderr


def wrong(text: str) -> list[str]:
    """Return the questions with wrong answers."""
    return [line[4:].partition("  ")[0] for line in text.splitlines() if line.startswith("  ✗")]


CHAIN = norm("x", "a"), one("a", "b"), two("b", "c"), norm("c", "d"), plain("Relu", "d", "y")
