"""Compare the borrowed operators of an installed wheel with independent references.

    python borrowed_truth.py      compares with each reference that is installed, and prints its name

roi_align: the values in onnx's node tests, and torchvision where it is installed (also its gradient);
causal_conv1d: torch's conv1d, composed as in its authors' reference, with autograd through it;
radius_graph: the edges and degrees in torch_cluster's own tests (test/test_radius.py of 1.6.3), and distances by
torch.cdist.
"""

from __future__ import annotations

import itertools
import warnings
from importlib.util import find_spec
from typing import Any

import torch
from borrowed_ops import functional

close = torch.testing.assert_close


def onnx_node_tests() -> str:
    """Compare samples of 2 by 2, with whole and half pixels, with ONNX's published values (four digits)."""
    import onnx
    from onnx.backend.test.case import node

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases compute at their own limits
        cases = node.collect_testcases("RoiAlign")
    found = 0
    for case in cases:
        (written,) = case.model.graph.node
        attributes: dict[str, Any] = {a.name: onnx.helper.get_attribute_value(a) for a in written.attribute}
        if attributes.get("mode", b"avg") != b"avg":
            continue  # the largest sample, which torchvision does not have
        for inputs, outputs in case.data_sets:
            x, boxes, indices = (torch.from_numpy(array) for array in inputs)
            rois = torch.cat([indices[:, None].to(boxes.dtype), boxes], dim=1)
            aligned = attributes["coordinate_transformation_mode"] == b"half_pixel"
            sizes = attributes["output_height"], attributes["output_width"], attributes["sampling_ratio"]
            actual = functional.roi_align(x, rois, attributes["spatial_scale"], *sizes, aligned)
            close(actual, torch.from_numpy(outputs[0]), rtol=1e-4, atol=1e-4)
            found += 1
    assert found >= 2, [case.name for case in cases]
    return f"roi_align: {found} node tests of onnx {onnx.__version__}"


def torchvision_roi_align() -> str:
    import torchvision

    worst, compared = 0.0, 0
    for dtype, ratio, aligned, scale in itertools.product(
        (torch.float32, torch.float64), (-1, 0, 1, 2, 3), (False, True), (0.25, 1.0, 0.0625)
    ):
        x = torch.randn(3, 5, 19, 23, dtype=dtype, requires_grad=True)
        corners = torch.rand(40, 2, 2, dtype=dtype) * 30 / scale - 4 / scale
        if ratio <= 0 and aligned:  # for a box that ends before it begins, torchvision fails
            corners = corners.sort(dim=1).values
        corners = corners.flatten(1)
        rois = torch.cat([torch.randint(0, 3, (40, 1)).to(dtype), corners], dim=1)
        arguments = x, rois, scale, 4, 6, ratio, aligned
        ours, theirs = functional.roi_align(*arguments), torch.ops.torchvision.roi_align(*arguments)
        limit = 1e-4 if dtype == torch.float32 else 1e-11
        worst = max(worst, float((ours - theirs).detach().abs().max()) / limit)
        close(ours, theirs, rtol=0, atol=limit)
        grad = torch.randn_like(ours)
        gradients = [torch.autograd.grad(y, x, grad)[0] for y in (ours, theirs)]
        close(*gradients, rtol=0, atol=10 * limit)
        compared += 1
    return f"roi_align: torchvision {torchvision.__version__}, {compared} times, at {worst:.0%} of the limit at most"


def conv1d() -> str:
    compared = 0
    for dtype, bias, before, activation, steps in itertools.product(
        (torch.float32, torch.float64), (False, True), (False, True), ("none", "silu", "swish"), (1, 2, 50)
    ):
        inputs: dict[str, torch.Tensor | None] = {
            "x": torch.randn(3, 6, steps, dtype=dtype), "weight": torch.randn(6, 4, dtype=dtype),
            "bias": torch.randn(6, dtype=dtype) if bias else None,
            "initial_states": torch.randn(3, 6, 3, dtype=dtype) if before else None,
        }  # fmt: skip
        asking = [t.requires_grad_() for t in inputs.values() if t is not None]
        ours = functional.causal_conv1d(*inputs.values(), activation)
        theirs = _composed(*inputs.values(), activation)
        limit = 1e-5 if dtype == torch.float32 else 1e-12
        grads = [torch.randn_like(y) for y in ours]
        for a, b in zip(ours, theirs, strict=True):
            close(a, b, rtol=limit, atol=limit)
        found = [torch.autograd.grad(y, asking, grads, materialize_grads=True) for y in (ours, theirs)]
        for a, b in zip(*found, strict=True):
            close(a, b, rtol=10 * limit, atol=10 * limit)
        compared += 1
    # Consecutive calls equal one call with all steps.
    x, weight = torch.randn(2, 6, 20, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    states, pieces = None, []
    for piece in x.split([7, 1, 2, 10], dim=2):
        out, states = functional.causal_conv1d(piece, weight, None, states, "silu")
        pieces.append(out)
    whole, last = functional.causal_conv1d(x, weight, None, None, "silu")
    close(torch.cat(pieces, dim=2), whole)
    close(states, last)
    return f"causal_conv1d: torch's conv1d, {compared} times, with gradients; in pieces as whole"


def _composed(x: Any, weight: Any, bias: Any, states: Any, activation: str) -> tuple[torch.Tensor, torch.Tensor]:
    past = weight.shape[1] - 1
    whole = torch.nn.functional.pad(x, (past, 0)) if states is None else torch.cat([states, x], dim=2)
    y = torch.nn.functional.conv1d(whole, weight[:, None], bias, groups=weight.shape[0])
    return (y if activation == "none" else torch.nn.functional.silu(y)), whole[:, :, x.shape[2] :]


def cdist() -> str:
    compared = 0
    for count, dimensions, radius, loop, most, batched in itertools.product(
        (1, 40, 300), (2, 3, 8), (0.7, 1.5), (False, True), (5, 1000), (False, True)
    ):
        x = torch.randn(count, dimensions, dtype=torch.float64)
        batch = torch.randint(0, 4, (count,)).sort().values if batched else None
        near = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist") < float(torch.tensor(radius))
        if batch is not None:
            near &= batch[:, None] == batch
        if not loop:
            near.fill_diagonal_(False)
        near &= near.cumsum(1) <= most
        targets, sources = near.nonzero(as_tuple=True)
        close(functional.radius_graph(x, batch, radius, loop, most), torch.stack([sources, targets]))
        turned = functional.radius_graph(x, batch, radius, loop, most, "target_to_source")
        close(turned, torch.stack([targets, sources]))
        compared += 1
    return f"radius_graph: torch.cdist, {compared} times"


def torch_cluster_tests() -> str:
    def edges(points: list[list[float]], batch: list[int] | None, r: float, **more: Any) -> torch.Tensor:
        return functional.radius_graph(torch.tensor(points), None if batch is None else torch.tensor(batch), r, **more)

    square, sides = [[-1.0, -1.0], [-1.0, 1.0], [1.0, 1.0], [1.0, -1.0]], {(0, 1), (1, 2), (2, 3), (0, 3)}
    both_ways = sides | {(b, a) for a, b in sides}
    for flow in ("source_to_target", "target_to_source"):
        found = edges(square, None, 2.5, flow=flow)
        assert {(a, b) for a, b in found.t().tolist()} == both_ways and found.shape == (2, 8)
    assert edges(square, None, 2.0).shape == (2, 0)  # torch_cluster's csrc: the distance is less than the radius
    for points, batch in ((square, None), ([square[0]] * 4, None), (square * 2, [0, 0, 0, 0, 1, 1, 1, 1])):
        found = edges(points, batch, 100.0, max_num_neighbors=1)
        assert torch.unique(found[1], return_counts=True)[1].tolist() == [1] * len(points)
    assert [i // 4 for i in found[0].tolist()] == [0, 0, 0, 0, 1, 1, 1, 1]
    return "radius_graph: 6 tests of torch_cluster"


if __name__ == "__main__":
    torch.manual_seed(3)
    print(onnx_node_tests())
    print(conv1d())
    print(torch_cluster_tests())
    print(cdist())
    if find_spec("torchvision"):
        print(torchvision_roi_align())
