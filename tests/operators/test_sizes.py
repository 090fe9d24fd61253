"""An operator with every kind of size passes all gates. tests/faults/sizes.toml has the faults.

tests/projects/sizes: "..." in front, a convolution's formula, sizes from lists and from an axis that an attribute
names, N + 1, the rank, sizes that the kernel decides in part, also in the shape of an input, and a matrix product
behind these.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from opmatrix.declaration.load import load_operator
from opmatrix.search.invalid_calls import Call, valid_call
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

NAMES = ("y", "largest", "repeated", "flat", "kept", "rows", "slices", "places")
# What to change in a valid call, and the message of torch, ONNX Runtime and the fake kernel alike.
REFUSED = {
    "a rank": ({"x": ()}, {}, "strided: x must have shape (..., L) and rank R, got ()"),
    "not divisible": (
        {"weight": (7,)}, {}, "strided: weight must have shape (groups*K,) with groups = 2, got (7,)",
    ),
    "an axis": ({}, {"dim": 2}, "strided: dim must be an axis of x, which has 2 axes, got 2"),
    "the rank of another": (
        {"pads": (3,)}, {}, "strided: pads must have shape (2*R,) with R = 2 as in x, got (3,)",
    ),
    "two optional inputs": (
        {"second": (3, 4)}, {}, "strided: second must have shape (3, Q) with Q = 3 as in first, got (3, 4)",
    ),
    "a divisor": ({}, {"stride": (0,)}, "strided: stride must each be at least 1"),
    "a short list": ({}, {"stride": ()}, "strided: stride must have at least 1 item, got 0"),
    "no room for the taps": (
        {"weight": (40,)}, {}, "strided: y would have the shape (4, -15); its inputs are too small",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("sizes", tmp_path_factory.mktemp("sizes"), "opsets=18")


def test_every_cell_is_verified(project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items()}
    cells = ("legacy-opset18", "dynamo-opset18")
    assert found == {f"strided-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_the_sizes_that_are_known_are_in_the_model(exporter: str, project: Project) -> None:
    """Also those behind an output of which the kernel decides one size, which a Linear needs."""
    folder = project.paths.build / f"export/strided/custom/torch2.13-{exporter}-opset18"
    graph = onnx.load(folder / "linear/model.onnx").graph
    assert [n.op_type for n in graph.node] == ["Strided", "MatMul"]
    assert {a.name for a in graph.node[0].attribute} == {"in", "groups", "for", "signed", "stride", "dilation"}
    sizes = {o.name: [d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim] for o in graph.output}
    assert (sizes["y"], sizes["largest"], sizes["repeated"]) == (["B", 3], ["B"], ["B", 10])
    assert sizes["flat"] == ["B", 3] or (sizes["flat"][1] == 3 and isinstance(sizes["flat"][0], str))
    assert sizes["kept"][1] == 5 and isinstance(sizes["kept"][0], str)


def test_a_node_with_the_name_of_the_kernel_is_refused(project: Project) -> None:
    """Otherwise ONNX Runtime would compute with the default."""
    path = project.paths.build / "export/strided/custom/torch2.13-legacy-opset18/strides/model.onnx"
    model = onnx.load(path)
    next(a for a in model.graph.node[0].attribute if a.name == "signed").name = "padding"
    onnx.save(model, planted := project.root / "planted.onnx")
    done = project.doit("check", str(planted))
    assert "it has no attribute 'padding'; declared: in, groups, for, signed, stride, dilation" in done.stdout

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        expected = "strided: unknown attribute padding; in ONNX its name is signed"
        with pytest.raises(RefusedError, match=expected):
            OrtSessions(project.paths.ort_library("strided")).sessions(planted.read_bytes())

    assert forked(in_onnx_runtime, project.root / "output") == ""


def changed(call: Call, names: list[str], shapes: dict[str, tuple[int, ...]], attributes: dict[str, object]) -> Call:
    inputs = [
        np.resize(array, shapes[name]) if name in shapes and isinstance(array, np.ndarray) else array
        for name, array in zip(names, call.inputs, strict=True)
    ]
    model = replace(call.model, attributes={**call.model.attributes, **attributes})  # type: ignore[dict-item]  # invalid
    return Call(model=model, inputs=tuple(inputs))


def test_both_bindings_and_the_fake_kernel_refuse_alike(project: Project) -> None:
    paths, operator = project.paths, load_operator(project.paths, "strided")
    names = [i.name for i in operator.spec.inputs]
    right = valid_call(operator)
    calls = {kind: (changed(right, names, *given), message) for kind, (*given, message) in REFUSED.items()}  # type: ignore[arg-type]  # two dicts

    def in_torch() -> None:
        import torch

        from opmatrix.export.generated_modules import load_generated
        from opmatrix.torch_checks.invalid_calls import call as called
        from opmatrix.torch_ops import load

        loaded = load.load(paths, operator)
        fake = load_generated(paths, "strided").fake.fake
        for kind, (call, message) in calls.items():
            with pytest.raises(RuntimeError) as caught:
                called(operator, loaded.overload, call)
            assert str(caught.value).startswith(message), kind
            if kind == "no room for the taps":
                continue  # torch itself refuses a tensor of that shape
            tensors = [None if a is None else torch.from_numpy(a) for a in call.inputs]  # type: ignore[arg-type]  # none is variadic
            values = {
                a.torch_name or a.name: call.model.attributes.get(a.name, a.default) for a in operator.spec.attributes
            }
            with pytest.raises(RuntimeError) as caught:
                fake(*tensors, **values)
            assert str(caught.value).startswith(message), kind

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.fuzz import Fuzz
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        fuzz = Fuzz(operator, OrtSessions(paths.ort_library("strided")))
        for call, message in calls.values():
            with pytest.raises(RefusedError, match=re.escape(message)):
                fuzz.run(call)

    assert forked(in_torch, project.root / "output") == ""
    assert forked(in_onnx_runtime, project.root / "output") == ""


def test_outputs_of_unknown_sizes_share_no_memory(project: Project) -> None:
    """With -1 for such sizes, which the C API has for them, ONNX Runtime gives the second node the memory of the first
    one's output, which is of another size."""

    def nodes(n: int, x: str) -> list[onnx.NodeProto]:
        outputs = [f"{name}{n}" for name in NAMES]
        node = helper.make_node("Strided", [x, "weight", "factors", "counts"], outputs, domain="test.sizes")
        return [node, helper.make_node("ReduceSum", [f"kept{n}"], [f"sum{n}"], keepdims=0)]

    sizes = {"x1": [9, 5], "x2": [4000, 5], "weight": [3], "factors": [5, 5], "counts": [4]}
    types = {name: onnx.TensorProto.INT64 if name == "counts" else onnx.TensorProto.FLOAT for name in sizes}
    zero = helper.make_tensor("zero", onnx.TensorProto.FLOAT, [], [0.0])
    later = [helper.make_node("Mul", ["sum1", "zero"], ["none"]), helper.make_node("Add", ["x2", "none"], ["later"])]
    graph = helper.make_graph(
        [*nodes(1, "x1"), *later, *nodes(2, "later")],
        "two",
        [helper.make_tensor_value_info(name, types[name], size) for name, size in sizes.items()],
        [helper.make_empty_tensor_value_info(name) for name in ("sum1", "sum2")],
        [zero],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test.sizes", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    feed = {name: np.ones(size, np.int64 if name == "counts" else np.float32) for name, size in sizes.items()}

    def run() -> None:
        from opmatrix.ort_checks.sessions import OrtSessions, call

        session = OrtSessions(project.paths.ort_library("strided")).sessions(model)["not optimised"]
        assert [float(value) for value in call(session, feed)] == [9 * 5, 4000 * 5]

    assert forked(run, project.root / "output") == ""
