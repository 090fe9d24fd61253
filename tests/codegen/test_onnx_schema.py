"""The generated ONNX schema, read by onnx's checker and shape inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from opmatrix.basics.files import load_module
from opmatrix.codegen import python_modules
from opmatrix.export.gates import registered
from opmatrix.spec import Attribute, Dims, OpSpec, ValueRule
from tests.support.specs import attribute, declare

SPEC = declare(
    "every(mask: bool[N], x: T[N, C]?, others: T[M, ...]*)"
    " -> same: int64 like mask, sizes: T[N, 3, 2*N + M, C], found: float64[?, ?]",
    Attribute(name="axis", kind="int"),
    attribute("strict=True"),
    attribute("mode='größer'"),
    Attribute(name="axes", kind="ints", default=()),
    attribute("flags=(True, False)"),
    attribute("scales=(0.5,)"),
    attribute("approximate='none'", torch_only=True),
    summary="Everything that a schema can say.",
    types={"T": ("float32", "int64")},
    tolerances={},
)


def inferred(folder: Path, shapes: Sequence[Sequence[int | str] | None], spec: OpSpec = SPEC) -> list[list[int | str]]:
    """Check a model of one node whose inputs have these shapes (None: absent); return the shapes of its outputs."""
    path = folder / "schema.py"
    path.write_text(python_modules.render(spec)["schema.py"])
    schema = load_module(path, "every_schema").schema()
    names = ["" if shape is None else f"i{n}" for n, shape in enumerate(shapes)]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT if n else TensorProto.BOOL, shape)
        for n, (name, shape) in enumerate(zip(names, shapes, strict=True))
        if name
    ]
    dtypes = {"same": TensorProto.INT64, "sizes": TensorProto.FLOAT, "found": TensorProto.DOUBLE}
    outputs = [
        helper.make_tensor_value_info(n, d, [None] * {"same": 1, "sizes": 4}.get(n, 2)) for n, d in dtypes.items()
    ]
    node = helper.make_node("Every", names, list(dtypes), domain="test.domain", axis=1)
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("test.domain", 1)]
    graph = helper.make_graph([node], "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    with registered(schema):
        onnx.checker.check_model(model, full_check=True)
        found = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    assert [o.type.tensor_type.elem_type for o in found.graph.output] == list(dtypes.values())
    return [[d.dim_param or d.dim_value for d in o.type.tensor_type.shape.dim] for o in found.graph.output]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (([4], [4, 5], [6, 7]), [[4], [4, 3, 14, 5]]),
        (([4], [4, 5], [6, 7], [6]), [[4], [4, 3, 14, 5]]),
        ((["N"], ["N", "C"], [6]), [["N"], ["N", 3, None, "C"]]),
        (([4], None, [6]), [[4], [4, 3, 14, None]]),
    ],
)
def test_sizes_are_inferred(tmp_path: Path, shapes: list[list[int | str]], expected: list[list[int | str]]) -> None:
    same, sizes, found = inferred(tmp_path, shapes)
    assert same == expected[0]
    # onnx invents names for unknown sizes.
    assert [None if str(s).startswith("unk__") else s for s in sizes] == expected[1]
    assert all(str(s).startswith("unk__") for s in found)


@pytest.mark.parametrize(("attribute", "bins"), [("axis", 1), ("bins", 9)])
def test_sizes_are_taken_from_attributes(tmp_path: Path, attribute: str, bins: int) -> None:
    """From the node's attribute, or from its default."""
    attributes = (replace(SPEC.attributes[0], minimum=0), Attribute(name="bins", kind="int", minimum=0, default=9))
    sizes = replace(SPEC.outputs[1], shape=Dims(dims=("N", attribute, f"2*{attribute} + N", 3)))
    spec = replace(SPEC, attributes=attributes, outputs=(SPEC.outputs[0], sizes, SPEC.outputs[2]))
    assert inferred(tmp_path, ([4], [4, 5], [6, 7]), spec)[1] == [4, bins, 2 * bins + 4, 3]
    assert inferred(tmp_path, (["N"], [4, 5], [6, 7]), spec)[1][:2] == ["N", bins]


def test_a_variadic_input_may_be_empty(tmp_path: Path) -> None:
    spec = replace(SPEC, types={"T": ("float32",)})
    assert inferred(tmp_path, ([4], [4, 5]), spec)[0] == [4]


def test_the_schema_has_the_declared_attributes(tmp_path: Path) -> None:
    path = tmp_path / "schema.py"
    path.write_text(python_modules.render(SPEC)["schema.py"])
    schema = load_module(path, "every_schema").schema()
    found = {
        name: None if a.required else helper.get_attribute_value(a.default_value)
        for name, a in schema.attributes.items()
    }
    assert found == {
        "axis": None, "strict": 1, "mode": "größer".encode(), "axes": [], "flags": [1, 0], "scales": [0.5],
    }  # fmt: skip
    assert schema.attributes["axes"].default_value.type == onnx.AttributeProto.INTS
    assert schema.attributes["axis"].type == onnx.defs.OpSchema.AttrType.INT


def test_the_checker_refuses_a_missing_attribute(tmp_path: Path) -> None:
    spec = replace(SPEC, attributes=(*SPEC.attributes, Attribute(name="other", kind="bool")))
    with pytest.raises(onnx.checker.ValidationError, match="other"):
        inferred(tmp_path, ([4], [4, 5], [6]), spec)


def test_the_schema_describes_rules_of_values() -> None:
    mask, x, others = SPEC.inputs
    rules = ValueRule(index_into="N", sorted="ascending"), ValueRule(allowed=(0, 1))
    inputs = (mask, replace(x, values=rules[0], doc="The rows."), replace(others, values=rules[1]))
    text = python_modules.render(replace(SPEC, inputs=inputs))["schema.py"]
    assert '"The rows; values: in [0, N); sorted in ascending order"' in text
    assert '"values: one of 0, 1"' in text
