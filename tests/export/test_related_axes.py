"""A dynamic axis from which another one is computed may have any name, also one that sympy defines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opmatrix.declaration.models import DynamicAxis
from tests.support.forked import forked

pytestmark = pytest.mark.torch


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
