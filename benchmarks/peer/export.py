"""The seed's second program: export one model with the operator, by the legacy exporter and a symbolic function."""

import sys
import warnings
from pathlib import Path

import torch

folder = Path(sys.argv[1])
torch.ops.load_library(str(folder / "peer.so"))
warnings.simplefilter("ignore")  # checks that the exporter is the legacy one


def symbolic(g, x, num_groups, scale, bias, eps):  # noqa: ANN001, ANN201
    eps = torch.onnx.symbolic_helper._maybe_get_const(eps, "f")
    return g.op("mydomain::mygroupnorm", x, num_groups, scale, bias, epsilon_f=eps).setType(x.type())


class Model(torch.nn.Module):
    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return torch.ops.peer.group_norm(*inputs, 1e-5)


torch.onnx.register_custom_op_symbolic("peer::group_norm", symbolic, 9)
inputs = (torch.randn(3, 2, 1, 2), torch.tensor([2.0]), torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0]))
torch.onnx.export(
    Model(),
    inputs,
    str(folder / "model.onnx"),
    opset_version=9,
    input_names=["x", "num_groups", "scale", "bias"],
    output_names=["y"],
    custom_opsets={"mydomain": 1},
    dynamo=False,
)
