"""A user's own model with operators of a wheel: trained, exported by both exporters, run.

    model.py export FOLDER    with torch: train it for a step, export it, write inputs and torch's outputs
    model.py run FOLDER       without torch: run the exported models in ONNX Runtime, and compare

It does not import opmatrix. The tests start it in environments that have the wheel.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

LEGACY, DYNAMO = (12, 17, 20), (18, 20, 23)


def export(folder: Path) -> None:
    import my_ops
    import torch
    from my_ops import functional

    with_nms = "nms" not in my_ops.unavailable
    if not with_nms:
        assert my_ops.unavailable["nms"].startswith("needs torch 2.10 or newer, found 2.9"), my_ops.unavailable

    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.scale = torch.nn.Parameter(torch.ones(8))
            self.bias = torch.nn.Parameter(torch.zeros(8))
            self.register_buffer("groups", torch.tensor([4.0]))
            self.head = torch.nn.Conv2d(8, 5, 1)

        def features(self, x: torch.Tensor) -> torch.Tensor:
            normal = functional.group_norm(self.stem(x), self.groups, self.scale, self.bias, eps=1e-4)
            return torch.relu(normal)

        def forward(self, x: torch.Tensor) -> Any:
            found = self.head(self.features(x)).flatten(2).mean(0).transpose(0, 1)
            left, right = functional.dual_residual(found, 2.0 * found, 0.5)
            rounded = functional.add_and_round(left)
            if not with_nms:
                return right, rounded
            boxes, scores = found[:, :4].contiguous(), found[:, 4].sigmoid()
            indices, selected, kept = functional.nms(boxes, scores, None, None, [], 0.5)
            return right, rounded, indices, selected, kept

    torch.manual_seed(1)
    model, x = Detector(), torch.randn(2, 3, 6, 7)
    before = model.scale.detach().clone()
    loss = (model.features(x) - 1.0).square().mean()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.5).step()
    assert model.stem.weight.grad is not None and model.stem.weight.grad.abs().max() > 0
    assert not torch.equal(before, model.scale)
    assert (model.features(x) - 1.0).square().mean() < loss

    model.eval()
    for opset in LEGACY:
        with my_ops.onnx.symbolics(opset):
            path = folder / f"legacy{opset}.onnx"
            torch.onnx.export(model, (x,), str(path), dynamo=False, opset_version=opset, input_names=["x"])
    refused(lambda: torch.onnx.export(model, (x,), str(folder / "no.onnx"), dynamo=False, opset_version=17))
    for opset in DYNAMO:
        table = my_ops.onnx.translation_table(opset)
        program = torch.onnx.export(
            model, (x,), dynamo=True, opset_version=opset, custom_translation_table=table, input_names=["x"],
            verbose=False,
        )  # fmt: skip
        my_ops.onnx.complete(program).save(folder / f"dynamo{opset}.onnx")
    table = my_ops.onnx.translation_table(18, decomposed=["group_norm"])
    names = {str(overload) for overload in table}
    assert "mynamespace.custom_group_norm.default" in names, names
    with torch.no_grad():
        np.savez(folder / "data.npz", x, *model(x))
    print(f"exported with torch {torch.__version__}")


def refused(action: Any) -> None:
    """Check that no symbolic function stays registered: without them the exporter knows none of the operators."""
    from torch.onnx.errors import UnsupportedOperatorError

    try:
        action()
    except UnsupportedOperatorError:
        return
    raise AssertionError("exported without symbolic functions")


def run(folder: Path) -> None:
    import my_ops_onnxruntime
    import onnx
    import onnxruntime

    assert "torch" not in sys.modules
    arrays = list(np.load(folder / "data.npz").values())
    x, expected = arrays[0], arrays[1:]
    models = sorted(folder.glob("*.onnx"))
    assert models
    for path in models:
        nodes = {f"{n.domain}::{n.op_type}" for n in onnx.load(path).graph.node if n.domain}
        wanted = {"mydomain::mygroupnorm", "rknn_cst::cstDualResidual", "test.customop::CustomOpOne"}
        assert wanted <= nodes, (path, nodes)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.register_custom_ops_library(my_ops_onnxruntime.library_path())
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        actual = session.run(None, {"x": x})
        assert len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-5, err_msg=path.name)
    assert "torch" not in sys.modules
    print(f"ran {len(models)} models in ONNX Runtime {onnxruntime.__version__}")


if __name__ == "__main__":
    {"export": export, "run": run}[sys.argv[1]](Path(sys.argv[2]))
