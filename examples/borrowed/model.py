"""Models with the operators of the wheel, as its user writes them: run in torch, exported by both exporters, run again.

    python model.py FOLDER      writes the models to FOLDER

Needs torch, onnx, onnxscript, onnxruntime and the wheel; knows nothing of opmatrix.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import borrowed_ops
import onnxruntime
import torch
from borrowed_ops import functional

LEGACY, DYNAMO = (12, 17, 20), (18, 20, 23)


class BoxHead(torch.nn.Module):
    """The second stage of a detector: its linear layer takes the size that roi_align's attributes give."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 4, 3, stride=4, padding=1)
        self.score = torch.nn.Linear(4 * 7 * 7, 5)

    def forward(self, image: torch.Tensor, boxes: torch.Tensor) -> torch.Tensor:
        pooled = functional.roi_align(self.stem(image), boxes, 0.25, 7, 7, 2, True)
        scores: torch.Tensor = self.score(pooled.flatten(1))
        return scores


class Mixer(torch.nn.Module):
    """The convolution of a Mamba block, as it decodes: what it has seen goes in and comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(6, 8)
        self.conv = torch.nn.Conv1d(8, 8, 4, groups=8)

    def forward(self, steps: torch.Tensor, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.inner(steps).transpose(1, 2)
        weight: torch.Tensor = self.conv.weight.squeeze(1)
        return functional.causal_conv1d(x, weight, self.conv.bias, states, "silu")


class Potential(torch.nn.Module):
    """A network over atoms: edges between near ones, and a message along each."""

    def __init__(self) -> None:
        super().__init__()
        self.message = torch.nn.Linear(3, 4)

    def forward(self, positions: torch.Tensor, molecules: torch.Tensor) -> torch.Tensor:
        edges = functional.radius_graph(positions, molecules, 1.5)
        sources, targets = edges[0], edges[1]
        messages = torch.relu(self.message(positions[sources] - positions[targets]))
        atoms = messages.new_zeros((positions.shape[0], 4))
        return torch.index_add(atoms, 0, targets, messages)


def models() -> dict[str, tuple[torch.nn.Module, dict[str, torch.Tensor]]]:
    """Return each model, with inputs by their names."""
    torch.manual_seed(6)
    boxes = torch.tensor([[0, 3.0, 5.0, 30.0, 40.0], [1, 10.0, 1.0, 63.0, 63.0], [1, -4.0, 20.0, 9.0, 29.5]])
    return {
        "box_head": (BoxHead(), {"image": torch.randn(2, 3, 64, 64), "boxes": boxes}),
        "mixer": (Mixer(), {"steps": torch.randn(2, 5, 6), "states": torch.randn(2, 8, 3)}),
        "potential": (
            Potential(),
            {"positions": torch.randn(9, 3), "molecules": torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2])},
        ),
    }


def export(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], path: Path, opset: int, *, dynamo: bool) -> None:
    arguments, names = tuple(inputs.values()), list(inputs)
    if not dynamo:
        with borrowed_ops.onnx.symbolics(opset):
            torch.onnx.export(model, arguments, str(path), dynamo=False, opset_version=opset, input_names=names)
        return
    table = borrowed_ops.onnx.translation_table(opset)
    program = torch.onnx.export(
        model, arguments, dynamo=True, opset_version=opset, custom_translation_table=table, input_names=names,
        verbose=False,
    )  # fmt: skip
    borrowed_ops.onnx.complete(program).save(path)


def run(path: Path, inputs: Mapping[str, torch.Tensor]) -> Any:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(borrowed_ops.library_path())
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {name: value.numpy() for name, value in inputs.items()})


def main(folder: Path) -> None:
    for name, (model, inputs) in models().items():
        model.train()
        torch.stack([y.square().sum() for y in _tuple(model(*inputs.values()))]).sum().backward()
        missing = [n for n, p in model.named_parameters() if p.grad is None]
        assert not missing, f"{name}: no gradient for {missing}"
        model.eval()
        expected = _tuple(model(*inputs.values()))
        for exporter, opsets in (("legacy", LEGACY), ("dynamo", DYNAMO)):
            for opset in opsets:
                if name == "potential" and exporter == "legacy" and opset < 16:
                    continue  # ONNX adds along indices since opset 16 (ScatterElements)
                path = folder / f"{name}-{exporter}{opset}.onnx"
                export(model, inputs, path, opset, dynamo=exporter == "dynamo")
                for actual, wanted in zip(run(path, inputs), expected, strict=True):
                    torch.testing.assert_close(torch.from_numpy(actual), wanted.detach(), rtol=1e-4, atol=1e-5)
    count = len([*folder.glob("*.onnx")])
    print(f"{count} models agree: torch {torch.__version__}, ONNX Runtime {onnxruntime.__version__}")


def _tuple(value: Any) -> tuple[torch.Tensor, ...]:
    return value if isinstance(value, tuple) else (value,)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
