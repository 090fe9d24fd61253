"""The fix that an exporter's error is printed with."""

from __future__ import annotations

import pytest
import torch

from opmatrix.export.exporters import explain

pytestmark = pytest.mark.torch


def test_a_dynamic_axis_that_torch_takes_for_a_constant() -> None:
    class Constant(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.ones(4)

    with pytest.raises(torch._dynamo.exc.UserError) as caught:
        torch.export.export(Constant(), (torch.ones(4),), dynamic_shapes=({0: torch.export.Dim("N_axis")},))
    message = explain(caught.value)
    assert message.startswith("torch.export takes the dynamic axis N for the constant 4, "), message
    assert "write None for it in `dynamic`, so that it is static; it raised UserError: " in message
