"""Why an operator that writes an argument is defined by a functional one: what torch's exporters make of one that has a
kernel of its own.

The generated fake.py defines it by the functional operator (tests/operators/test_in_place.py). A torch that exports one
with a kernel makes a test here fail.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import onnx
import pytest
import torch

pytestmark = pytest.mark.torch


class AddInPlace(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        torch.ops.opmatrix_in_place.add_(z, y)
        return z + 1


@pytest.fixture(scope="module")
def library() -> Any:
    """``add_(Tensor(a!) x, Tensor y) -> ()``, and the same with its argument as a result."""
    made = torch.library.Library("opmatrix_in_place", "DEF")
    made.define("add_(Tensor(a!) x, Tensor y) -> ()")
    made.impl("add_", lambda x, y: (x.add_(y), None)[1], "CompositeExplicitAutograd")
    made.define("returned_(Tensor(a!) x, Tensor y) -> Tensor(a!)")
    made.impl("returned_", lambda x, y: x.add_(y), "CompositeExplicitAutograd")
    for name, fake in (("add_", lambda x, y: None), ("returned_", lambda x, y: x)):
        torch.library.register_fake(f"opmatrix_in_place::{name}", fake, lib=made)
    return made


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.ones(2, 3), torch.full((2, 3), 5.0)


def test_the_legacy_exporter_drops_the_call(library: Any) -> None:
    called: list[str] = []

    def symbolic(g: Any, x: Any, y: Any) -> Any:
        called.append("add_")
        return g.op("my::Add", x, y)

    name, file = "opmatrix_in_place::add_", io.BytesIO()
    torch.onnx.register_custom_op_symbolic(name, symbolic, 17)  # type: ignore[attr-defined]  # torch.onnx does not export it in its stubs
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(AddInPlace(), inputs(), file, dynamo=False, opset_version=17)  # type: ignore[arg-type]  # it takes a file object
    finally:
        torch.onnx.unregister_custom_op_symbolic(name, 17)  # type: ignore[attr-defined]  # as above
    found = onnx.load_model_from_string(file.getvalue()).graph.node
    assert not called and sorted({node.op_type for node in found}) == ["Add", "Constant", "Mul"]


def test_the_dynamo_exporter_stops(library: Any) -> None:
    with warnings.catch_warnings(), pytest.raises(Exception, match="auto_functionalized") as raised:
        warnings.simplefilter("ignore")
        torch.onnx.export(AddInPlace(), inputs(), dynamo=True, verbose=False)
    assert "ConversionError" in str(raised.value)


def test_torch_functionalizes_no_result_that_is_an_argument(library: Any) -> None:
    """So the form that the legacy exporter could write, with a result, is none that torch.export takes."""

    class Returned(torch.nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.ops.opmatrix_in_place.returned_(x * 2, y) + 1  # type: ignore[no-any-return]  # torch.ops has no types

    with pytest.raises(RuntimeError, match="output has alias annotations"):
        torch.export.export(Returned(), inputs()).run_decompositions({})
