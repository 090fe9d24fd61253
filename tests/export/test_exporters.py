"""Why the exporters get the number that a generator gives, and not the generator: neither writes one into a model.

If one of these tests fails, torch has learned it. operators/test_seeds.py has operators with a generator.

The fix that an exporter's error is printed with.

A dynamic axis from which another one is computed may have any name, also one that sympy defines.

Why an operator that writes an argument is defined by a functional one: what torch's exporters make of one that has a
kernel of its own.

The generated fake.py defines it by the functional operator (tests/operators/test_in_place.py). A torch that exports one
with a kernel makes a test here fail.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from opmatrix.declaration.models import DynamicAxis
from opmatrix.export.exporters import explain
from tests.support.forked import forked

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def model() -> Iterator[torch.nn.Module]:
    """A model that adds a number of a generator."""
    library = torch.library.Library("test_generator", "DEF")
    library.define("noisy(Tensor x, *, Generator? generator=None) -> Tensor")

    def noisy(x: torch.Tensor, *, generator: Any = None) -> torch.Tensor:
        return x + torch.rand((), generator=generator)

    library.impl("noisy", noisy, "CPU")
    torch.library.register_fake("test_generator::noisy", lambda x, *, generator=None: torch.empty_like(x), lib=library)
    given = torch.Generator()

    class Noisy(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.test_generator.noisy(x, generator=given)  # type: ignore[no-any-return]  # of torch.ops

    yield Noisy()
    library._destroy()


def test_the_legacy_exporter_takes_no_generator(model: torch.nn.Module) -> None:
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="unsupported input type: Generator"):
        warnings.simplefilter("ignore")  # that the exporter is deprecated
        torch.onnx.export(model, (torch.ones(2),), io.BytesIO(), dynamo=False)


def test_the_dynamo_exporter_takes_no_generator(model: torch.nn.Module) -> None:
    with warnings.catch_warnings(), pytest.raises(torch.onnx.OnnxExporterError, match="Generator"):
        warnings.simplefilter("ignore")  # of torch's own code
        torch.onnx.export(model, (torch.ones(2),), dynamo=True, verbose=False)


def test_a_dynamic_axis_that_torch_takes_for_a_constant() -> None:
    class Constant(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(4)

    with pytest.raises(torch._dynamo.exc.UserError) as caught:
        torch.export.export(Constant(), (torch.ones(4),), dynamic_shapes=({0: torch.export.Dim("N_axis")},))
    message = explain(caught.value)
    assert message.startswith("torch.export takes the dynamic axis N for the constant 4, "), message
    assert "write None for it in `dynamic`, so that it is static; it raised UserError: " in message


@pytest.mark.parametrize("name", ["N", "S", "rows"])
def test_names_of_related_axes(name: str, tmp_path: Path) -> None:
    def run() -> None:
        import torch

        from opmatrix.export import dynamo_exporter
        from opmatrix.export.traced import ExporterInput

        class Difference(torch.nn.Module):
            def forward(self, x: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
                return x + ends[1:] - ends[:-1]

        given = ExporterInput(
            module=Difference(),
            inputs=(torch.zeros(4), torch.zeros(5)),
            lowered=[],
            opset=18,
            versions={},
            input_names=["x", "ends"],
            output_names=["y"],
            axes=[{0: name}, {0: "P"}],
            related={name: DynamicAxis(minimum=1), "P": DynamicAxis(of=name, offset=1)},
        )
        dims = dynamo_exporter._dims(given)
        shapes = tuple({axis: dims[one] for axis, one in names.items()} for names in given.axes)
        program = torch.export.export(given.module, given.inputs, dynamic_shapes=shapes)
        sizes = [(*node.meta["val"].shape,) for node in program.graph.nodes if node.op == "placeholder"]
        print(json.dumps([bool(sizes[1][0] - sizes[0][0] == 1), sizes[0][0].node.hint, sizes[1][0].node.hint]))

    assert forked(run, tmp_path / "output") == ""
    assert json.loads((tmp_path / "output").read_text().splitlines()[-1]) == [True, 4, 5]


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
