"""Operators of `doit new` with names in use, over torch's C++ headers, in torches without the stable ABI."""

from __future__ import annotations

import pytest

from opmatrix.scaffold.from_torch_schema import from_schema
from tests.other_versions.conftest import Needs
from tests.support.generated_operators import outcomes
from tests.support.projects import Project

pytestmark = [pytest.mark.matrix, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

# An attribute by the name of torch's own parameter; names of the binding; an argument that is written, and a Scalar.
SCHEMAS = (
    "my::k16(Tensor x, int self, int out) -> Tensor",
    "my::bytes(Tensor count, int text=-9223372036854775808, str strings='a\"b??/\\\\') -> Tensor",
    "my::stack(Tensor(a!) stack, Scalar TensorView=2, *, float lambda_=1e-46) -> Tensor(a!)",
    "my::math(Tensor std, Tensor? double, int[] context=[1], bool class_=True) -> (Tensor, Tensor)",
)


@pytest.mark.parametrize("torch", ["1.13", "2.6"])
def test_new_operators_are_verified(project: Project, torch: str, needs: Needs) -> None:
    needs(f"torch{torch}")
    drafts = [from_schema(text, domain="my.domain") for text in SCHEMAS]
    found = outcomes(project, drafts, f"torch={torch}", "opsets=17")
    assert {*found.values()} == {"verified"} and {op for op, _ in found} >= {d.spec.name for d in drafts}
