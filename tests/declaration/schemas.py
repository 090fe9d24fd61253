"""Declarations with a written torch schema, and the mistakes of a declaration."""

from __future__ import annotations

from dataclasses import replace

from opmatrix.declaration.load import load_operator
from opmatrix.declaration.validation.operator import declaration
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp
from tests.support.projects import ROOT

WRITTEN = load_operator(Paths(ROOT / "tests/projects/schemas"), "written").spec
ROWS = load_operator(Paths(ROOT / "tests/projects/schemas"), "rows").spec
SPEC = OpSpec(
    name="shifted",
    summary="Shift.",
    torch=TorchOp(name="my::shift", schema="my::shift(Tensor x, int[2] by=1, *, float eps=1e-05) -> Tensor"),
    onnx=OnnxOp(domain="my.domain", op_type="Shift"),
    inputs=(
        Input(name="x", type="float32"),
        Input(name="mask", type="float32", optional=True),
    ),
    attributes=(
        Attribute(name="by", kind="ints", default=(1, 1)),
        Attribute(name="eps", kind="float", default=1e-5),
    ),
    outputs=(Output(name="y", type="float32", shape=SameAs(input="x")),),
    tolerances={"custom": {"float32": Tolerance(rtol=0.0, atol=0.0)}},
)
ONE = replace(SPEC, inputs=SPEC.inputs[:1])


def found(spec: OpSpec) -> list[str]:
    return [f"{mistake.field}: {mistake.text}" for mistake in declaration(spec, spec.name)]
