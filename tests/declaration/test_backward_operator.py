"""An operator that computes the gradient of another one: what does not fit is one clear message."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opmatrix.declaration.backward_operator import mistakes, without_gradient
from opmatrix.declaration.load import Operator, declared, load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Input, OpSpec, Output, Override, SameAs, TorchOp
from tests.support.projects import ROOT

LAYOUT = Paths(ROOT / "tests/projects/backward")
OPERATOR, CALLED = load_operator(LAYOUT, "soft_cap"), load_operator(LAYOUT, "soft_cap_backward")
SPEC, BACKWARD = OPERATOR.spec, CALLED.spec


def with_input(spec: OpSpec, name: str, **fields: object) -> OpSpec:
    inputs = [i for i in spec.inputs if i.name != name]
    return replace(spec, inputs=(*inputs, Input(name=name, **({"type": "T", "dims": ("N", "C")} | fields))))


def with_output(spec: OpSpec, name: str, **fields: object) -> OpSpec:
    outputs = [o for o in spec.outputs if o.name != name]
    return replace(spec, outputs=(*outputs, Output(name=name, **({"type": "T", "shape": SameAs(input="x")} | fields))))


def test_one_that_fits() -> None:
    assert [*mistakes(SPEC, BACKWARD)] == []
    assert without_gradient(SPEC, BACKWARD) == ()
    assert without_gradient(SPEC, replace(BACKWARD, outputs=BACKWARD.outputs[:1])) == ("scale", "shift")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (with_input(BACKWARD, "grad_z"), "its input 'grad_z' is unknown; did you mean 'grad_y'?, allowed: "),
        (with_input(BACKWARD, "x", variadic=True), "its input 'x' is variadic, allowed: inputs that are one tensor"),
        (with_input(BACKWARD, "shift", dims=("C",)), "its input 'shift' is declared optional=False, allowed: True"),
        (with_output(BACKWARD, "grad_scales"), "its output 'grad_scales' is unknown; did you mean 'grad_scale'?"),
        (with_output(BACKWARD, "grad_x", optional=True), "its output 'grad_x' is optional, allowed: optional=False"),
        (
            replace(BACKWARD, attributes=(Attribute(name="caps", kind="float", default=2.0),)),
            "its attribute 'caps' is unknown; did you mean 'cap'?, allowed: cap",
        ),
        (
            replace(BACKWARD, attributes=(Attribute(name="cap", kind="int", default=2),)),
            "its attribute 'cap' is int, allowed: float, as there",
        ),
        (
            replace(BACKWARD, types={"T": ("float32",)}),
            "its 'grad_y' has the type T, which cannot be float64, as 'y' may be",
        ),
        (replace(BACKWARD, torch=None), "it has no torch operator of its own"),
        (replace(BACKWARD, torch=TorchOp(name="b::b", backward="c")), "it names 'c' as its own backward"),
    ],
)
def test_one_that_does_not_fit(changed: OpSpec, message: str) -> None:
    (found,) = [*mistakes(SPEC, changed)]
    assert found.startswith(message)


def test_a_type_variable_that_has_two_dtypes() -> None:
    two = {"T": ("float32", "float64"), "U": ("float32", "float64")}
    scale = replace(SPEC.inputs[1], type="U")
    (found,) = [*mistakes(replace(SPEC, types=two, inputs=(SPEC.inputs[0], scale, SPEC.inputs[2])), BACKWARD)]
    assert found == "its 'scale' has the type T, which is float32 for another part where 'scale' is float64"


def failed(operator: Operator, *others: Operator) -> str:
    found = declared((o.name, o, ()) for o in (operator, *others))
    return "\n".join(line for lines in found.failed.values() for line in lines)


def test_the_mistakes_are_those_of_the_operator_that_names_it() -> None:
    assert failed(OPERATOR, CALLED) == ""
    assert failed(OPERATOR) == (
        "ops/soft_cap/spec.py: torch.backward: no operator 'soft_cap_backward' in ops/; did you mean 'soft_cap'?"
    )
    broken = declared([("soft_cap", OPERATOR, ()), ("soft_cap_backward", None, ["ops/soft_cap_backward: broken"])])
    assert broken.failed["soft_cap"] == (
        "ops/soft_cap/spec.py: torch.backward: 'soft_cap_backward' cannot be used: ops/soft_cap_backward: broken",
    )


def test_an_operator_of_torch_has_its_own_gradient() -> None:
    from opmatrix.declaration.validation import declaration

    torch = TorchOp(name="aten::tanh", overrides=(Override(name="aten::tanh"),), backward="soft_cap_backward")
    found = [m.text for m in declaration(replace(SPEC, torch=torch), "soft_cap") if m.field == "torch.backward"]
    assert found == ["allowed without torch.overrides: torch has the gradient of its own operator"]
