"""The versions of a declaration: which schemas there are, and what each of them has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import ExportError
from opmatrix.declaration import validation
from opmatrix.declaration.load import load_operators
from opmatrix.lowering.call import Lowered, Tensor, record
from opmatrix.project.paths import Paths
from opmatrix.signature import versions as schema_versions
from opmatrix.spec import Attribute, Case, Lowering, Model, OpSpec, Random, TorchOp
from tests.support import double

OFFSET = Attribute(name="offset", kind="float", default=0.5, since=3)
POWERS = Attribute(name="powers", kind="ints", default=(1,), since=4)
SPEC = replace(
    double.SPEC,
    torch=TorchOp(name="test::double"),
    onnx=replace(double.SPEC.onnx, versions=(1, 2, 3, 4, 5)),
    attributes=(*double.SPEC.attributes, OFFSET, POWERS),
)


def test_a_schema_begins_with_each_new_attribute() -> None:
    """A node of a later schema has its version."""
    assert schema_versions.versions(double.SPEC) == (1,)
    assert schema_versions.versions(SPEC) == (1, 3, 4)
    assert [schema_versions.version_at(SPEC, imported) for imported in (1, 2, 3, 4, 5)] == [1, 1, 3, 4, 4]
    found = {v: schema_versions.at(SPEC, v) for v in (1, 3, 4)}
    assert {v: s.onnx.versions for v, s in found.items()} == {1: (1, 2), 3: (3,), 4: (4, 5)}
    assert [a.name for a in found[1].attributes] == ["factor"]
    assert [a.name for a in found[3].attributes] == ["factor", "offset"]
    assert found[4].attributes == SPEC.attributes
    names = {v: [a.name for a in schema_versions.attributes_at(SPEC, v)] for v in (1, 2, 3, 5)}
    assert names[1] == names[2] == ["factor"]
    assert names[3] == ["factor", "offset", "schema_version"]
    assert names[5] == ["factor", "offset", "powers", "schema_version"]
    assert schema_versions.attributes_at(SPEC, 5)[-1].default == 4


@pytest.mark.parametrize(
    ("changed", "versions", "expected"),
    [
        ({"since": 2}, (1,), "found 2, allowed: none: onnx.versions has nothing after 1; add it"),
        ({"since": 1}, (1, 2), "attributes[0].since: found 1, allowed: 2"),
        ({"since": 3}, (1, 2, 4), "attributes[0].since: found 3, allowed: 2, 4"),
        ({"since": None, "name": "schema_version"}, (1,), "found 'schema_version', which nodes of a later"),
        ({"since": 2}, (1, 2), "found on an operator without a node of its own; allowed: in nms"),
    ],
)
def test_what_cannot_come_later(changed: dict[str, Any], versions: tuple[int, ...], expected: str) -> None:
    """An operator without a node has one version."""
    uses = ("nms",) if "nms" in expected else ()
    onnx, attributes = replace(double.SPEC.onnx, versions=versions), (replace(OFFSET, **changed),)
    spec = replace(double.SPEC, onnx=onnx, attributes=attributes, uses=uses, name="double")
    found = [f"{m.field}: {m.text}" for m in validation.declaration(spec, "double")]
    assert any(expected in line for line in found), found
    assert not uses or len([line for line in found if "since" in line]) == 1


def test_a_lowering_that_the_operator_lacks_has_no_min_opset() -> None:
    case = Case(name="one", inputs={"x": Random(shape=(2,))})
    late = Model(name="m", types={"T": "float32"}, min_opset={"decomposed": 13}, cases=(case,))
    (found,) = validation.cases(replace(SPEC, lowerings=("custom",)), [late])
    assert (found.field, found.text) == ("MODELS[0].min_opset", "found 'decomposed', allowed: custom")
    assert not list(validation.cases(SPEC, [late]))


def nodes(version: int, *arguments: object, lowering: Lowering = "custom") -> list[dict[str, object]]:
    """Record the attributes of a lowering that writes those of the version."""

    def custom(g: Any, x: object, factor: float, offset: float, powers: tuple[int, ...]) -> object:
        newer = {"offset_f": offset} if g.version("test.domain") >= 3 else {}
        return g.op("test.domain::Double", x, factor_f=factor, **newer)

    lowered = Lowered(spec=SPEC, lowering=lowering, function=custom)
    x = Tensor(name="x", dtype="float32", shape=(2,))
    found = record(lowered, [x, *arguments], opset=18, versions={"test.domain": version}, outputs=["y"])
    return [{a.name: a.f for a in node.attribute} for node in found]


def test_a_lowering_writes_the_attributes_of_the_version() -> None:
    assert nodes(2, 2.0, 0.5, (1,)) == [{"factor": 2.0}]
    assert nodes(3, 2.0, 0.25, (1,)) == [{"factor": 2.0, "offset": 0.25}]
    assert nodes(1, 2.0, 0.25, (7,), lowering="decomposed")  # whose nodes have no version


def test_a_value_that_a_version_cannot_express_is_refused() -> None:
    message = (
        "double: offset=0.25 needs version 3 of 'test.domain', and the model imports 2, where it is 0.5. Export at"
    )
    with pytest.raises(ExportError, match=message):
        nodes(2, 2.0, 0.25, (1,))
    with pytest.raises(ExportError, match=r"powers=\(2,\) needs version 4"):
        nodes(3, 2.0, 0.25, (2,))


def test_a_declaration_of_one_version_does_not_change(root: Path) -> None:
    for operator in load_operators(Paths(root)):
        spec: OpSpec = operator.spec
        assert schema_versions.versions(spec) == (1,)
        assert schema_versions.at(spec, 1) == spec
