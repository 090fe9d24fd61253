"""Models of several domains, and the findings that `doit check` reports for them."""

from __future__ import annotations

import onnx
from onnx import ModelProto, parser

from tests.support.projects import Project


def norm(x: str, y: str) -> str:
    return f"[norm_{y}] {y} = mydomain.mygroupnorm <epsilon = 1e-5> ({x}, groups, scale, bias)"


def one(x: str, y: str) -> str:
    return f"[one_{y}] {y} = test.customop.CustomOpOne ({x}, {x})"


def two(x: str, y: str) -> str:
    return f"[two_{y}] {y} = test.customop.CustomOpTwo ({x})"


def model(*nodes: str, more: str = "", inputs: str = "float[N,4,L] x", output: str = "float[N,4,L] y") -> ModelProto:
    """Return a model from x to y, and `more` functions in the domain local."""
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18, "mydomain": 1, "test.customop": 1, "local": 1]>
        g ({inputs}) => ({output}) <float[1] groups = {{2}}, float[4] scale = {{1, 1, 1, 1}}, float[4] bias = {{
        0.5, 0.5, 0.5, 0.5}}> {{ {" ".join(nodes)} }} {more}""")


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


CHAIN = norm("x", "a"), one("a", "b"), two("b", "c"), norm("c", "d"), "y = Relu (d)"
