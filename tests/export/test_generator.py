"""Why the exporters get the number that a generator gives, and not the generator: neither writes one into a model.

If one of these tests fails, torch has learned it. operators/test_seeds.py has operators with a generator.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

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
