"""The seed's third program: run the model in ONNX Runtime, and compare with torch."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import torch

folder = Path(sys.argv[1])
torch.ops.load_library(str(folder / "peer.so"))
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(folder / "ort.so"))
session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"])
inputs = (torch.randn(3, 2, 1, 2), torch.tensor([2.0]), torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0]))
feeds = {given.name: value.numpy() for given, value in zip(session.get_inputs(), inputs, strict=True)}
(actual,) = session.run(None, feeds)
np.testing.assert_allclose(actual, torch.ops.peer.group_norm(*inputs, 1e-5).numpy(), rtol=1e-4, atol=1e-6)
