"""Declarations with a written torch schema, and the mistakes of a declaration."""

from __future__ import annotations

from dataclasses import replace

from opmatrix.declaration.load import load_operator
from opmatrix.declaration.validation.operator import declaration
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec, TorchOp
from tests.support.projects import ROOT
from tests.support.specs import declare

WRITTEN = load_operator(Paths(ROOT / "tests/projects/schemas"), "written").spec
ROWS = load_operator(Paths(ROOT / "tests/projects/schemas"), "rows").spec
SPEC = declare(
    "shifted(x: float32, mask: float32?, by=(1, 1), eps=1e-5) -> y: float32 like x",
    torch=TorchOp(name="my::shift", schema="my::shift(Tensor x, int[2] by=1, *, float eps=1e-05) -> Tensor"),
    onnx="my.domain::Shift",
    summary="Shift.",
)
ONE = replace(SPEC, inputs=SPEC.inputs[:1])


def found(spec: OpSpec) -> list[str]:
    return [f"{mistake.field}: {mistake.text}" for mistake in declaration(spec, spec.name)]
