"""Edges between points that are near each other, as torch_cluster (1.6) has them for graph networks."""

from opmatrix.spec import Attribute, FromKernel, Input, OnnxOp, OpSpec, Output, Tolerance, TorchOp

EXACT = Tolerance(rtol=0.0, atol=0.0)

SPEC = OpSpec(
    name="radius_graph",
    summary="Connect each point with those of its example that are nearer than a radius.",
    torch=TorchOp(name="borrowed::radius_graph"),
    onnx=OnnxOp(domain="borrowed", op_type="RadiusGraph"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "F"), doc="points in F dimensions"),
        Input(name="batch", type="int64", dims=("N",), optional=True, doc="the example of each, never decreasing"),
    ),
    attributes=(
        Attribute(name="r", kind="float", minimum=0.0, doc="the radius: a distance must be less"),
        Attribute(name="loop", kind="bool", default=False, doc="whether a point is a neighbour of itself"),
        Attribute(name="max_num_neighbors", kind="int", default=32, minimum=1, doc="of each; the first by index stay"),
        Attribute(
            name="flow", kind="string", default="source_to_target", allowed=("source_to_target", "target_to_source"),
            doc="whether an edge leads from the neighbour to the point, or from the point to the neighbour",
        ),
    ),
    outputs=(
        Output(name="edge_index", type="int64", shape=FromKernel(dims=(2, "E")), doc="from where and to where"),
    ),
    tolerances={"custom": {"int64": EXACT}},
)  # fmt: skip
