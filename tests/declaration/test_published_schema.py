"""A published version is compared with the declaration: what may change, and what may not. An operator that computes
the gradient of another one: what does not fit is one clear message.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import SpecError
from opmatrix.declaration import published
from opmatrix.declaration.backward_operator import mistakes, without_gradient
from opmatrix.declaration.load import Operator, declared, load_operator, load_operators
from opmatrix.declaration.validation import declaration
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Input, OpSpec, Output, Override, SameAs, TorchOp
from tests.support.evolved import SPEC as EVOLVED

ROOT = Path(__file__).parents[2]
SCHEMA = "ops/group_norm/published/1/schema.json"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A project with the published group_norm; its cases fit each edit of a test."""
    shutil.copytree(ROOT / "ops/group_norm", tmp_path / "ops/group_norm", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "native/group_norm", tmp_path / "native/group_norm")
    return Paths(tmp_path)


def change(paths: Paths, *changes: tuple[str, str], file: str = "ops/group_norm/spec.py") -> None:
    path = paths.root / file
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)


def load(paths: Paths) -> Operator:
    return load_operator(paths, "group_norm")


def test_published_versions_of_this_project_match_their_declarations_and_are_reproducible(paths: Paths) -> None:
    found = {o.name: o.published for o in load_operators(Paths(ROOT))}
    assert {name: versions for name, versions in found.items() if versions} == {"group_norm": (1,)}
    text = (paths.root / SCHEMA).read_text()
    assert published.text(published.updated(json.loads(text), load(paths).spec)) == text
    assert published.text(json.loads(text)) == text
    assert '"T": ["float32", "float64"]' in text  # as it was published
    assert '"later_types": {\n    "T": ["float16", "bfloat16"]' in text


BREAKS = (
    "Models and programs of others rely on it: take it back, or make an operator with another op_type next to this one"
)
GIVEN = "If nothing uses version 1, delete ops/group_norm/published/1"


EPSILON = 'name="epsilon", kind="float", default=1e-5, torch_name="eps", minimum=0.0'
TYPES = '("float32", "float64", "float16", "bfloat16")'
BIAS = 'name="bias", type="T", dims=("C",)'
OF_EPSILON, OF_BIAS = "attributes['epsilon']", "inputs['bias']"
GONE = "found nothing of that name"


@pytest.mark.parametrize(
    ("old", "new", "field", "was", "now"),
    [
        (TYPES, '("float32",)', "types['T']", "['float32', 'float64', 'float16', 'bfloat16']", "found ['float32']"),
        (EPSILON, EPSILON.replace("default=1e-5, ", ""), f"{OF_EPSILON}.default", "1e-05", "found nothing"),
        (EPSILON, f"{EPSILON}, maximum=1.0", f"{OF_EPSILON}.maximum", "nothing", "found 1.0"),
        (EPSILON, EPSILON.replace('"eps"', '"epsi"'), f"{OF_EPSILON}.torch_name", "eps", "found epsi"),
        (EPSILON, EPSILON.replace('"float"', '"int"').replace("1e-5", "1"), f"{OF_EPSILON}.kind", "float", "found int"),
        (BIAS, BIAS.replace('("C",)', "None"), f"{OF_BIAS}.dims", "['C']", "found nothing"),
        (BIAS, f"{BIAS}, optional=True", f"{OF_BIAS}.optional", "nothing", "found True"),
        (BIAS, BIAS.replace("bias", "summand"), OF_BIAS, "it", GONE),
        ('"mydomain"', '"my.domain"', "onnx.domain", "'mydomain'", "found 'my.domain'"),
        ('SameAs(input="x")', 'SameAs(input="scale")', "outputs['y'].shape", "as x", "found as scale"),
    ],
)  # fmt: skip
def test_a_change_of_a_published_version_is_refused(
    paths: Paths, old: str, new: str, field: str, was: str, now: str
) -> None:
    change(paths, (old, new))
    begin = f"ops/group_norm/spec.py: {field}: version 1 is published with {was}"
    (found,) = [line for line in refused(paths) if line.startswith(begin)]
    assert now in found and BREAKS in found and found.endswith(GIVEN)


def test_the_only_legal_value_of_an_argument_may_not_change(paths: Paths) -> None:
    spec = load_operator(Paths(ROOT / "tests/projects/scalars"), "dequantized").spec
    assert spec.torch is not None
    kept = published.schema(spec, 1)
    assert published.differences(kept, spec, paths.root) == []
    other = replace(spec, torch=replace(spec.torch, fixed={**spec.torch.fixed, "dtype": "float64"}))
    (found,) = published.differences(kept, other, paths.root)
    assert found.field == "torch" and "with dtype=float64, layout=strided, device=cpu, accumulated=None'" in found.text


def test_a_dtype_may_join_a_published_version(paths: Paths) -> None:
    """A library without it refuses a model with it, by its type."""
    before = json.loads((paths.root / SCHEMA).read_text())
    del before["later_types"]
    spec = load(paths).spec
    assert published.differences(before, spec, paths.published("group_norm", 1)) == []
    assert published.updated(before, spec) == json.loads((paths.root / SCHEMA).read_text())
    fewer = replace(spec, types={"T": ("float64", "float32")})
    assert published.updated(before, fewer) == before


def refused(paths: Paths) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load(paths)
    return str(caught.value).splitlines()


def test_one_change_or_a_missing_schema_is_one_message(paths: Paths) -> None:
    change(paths, ("default=1e-5", "default=1e-4"))
    assert len(refused(paths)) == 1
    (paths.root / SCHEMA).unlink()
    (found,) = refused(paths)
    assert "No such file" in found


def test_docs_and_tolerances_may_change(paths: Paths) -> None:
    change(
        paths,
        ("added to the variance", "what is added to the variance"),
        ("rtol=2.5e-7", "rtol=1e-5"),
        ('summary="Normalize', 'summary="To normalize'),
        ("versions=(1, 2)", "versions=(1, 2, 3)"),  # no published model imports version 3
    )
    assert load(paths).published == (1,)


def test_a_later_version_does_not_change_the_first(paths: Paths) -> None:
    change(paths, *EVOLVED)
    spec = load(paths).spec
    kept = json.loads((paths.root / SCHEMA).read_text())
    assert published.updated(kept, spec) == kept
    later = published.schema(spec, 3)
    assert list(later["attributes"]) == ["epsilon", "lift", "schema_version"]
    assert later["torch"] == "mynamespace::custom_group_norm(Tensor x, Tensor num_groups, Tensor scale, Tensor bias, " \
        "float eps=1e-05, float lift=0.0) -> Tensor"  # fmt: skip


def test_a_published_later_version_cannot_change(paths: Paths) -> None:
    change(paths, *EVOLVED)
    text = published.text(published.schema(load(paths).spec, 3))
    paths.published("group_norm", 3).mkdir()
    (paths.published("group_norm", 3) / "schema.json").write_text(text)
    change(paths, ('name="lift", kind="float", default=0.0', 'name="lift", kind="float", default=1.0'))
    (found,) = refused(paths)
    assert "attributes['lift'].default: version 3 is published with 0.0, found 1.0" in found
    change(paths, ("default=1.0", "default=0.0"), ("default=1e-5", "default=1e-3"))
    assert len(refused(paths)) == 1  # though two versions have it
    change(paths, ("default=1e-3", "default=1e-5"), ("since=3", "since=4"), ("(1, 2, 3)", "(1, 2, 3, 4)"))
    assert "version 3 is published, and the declaration has: 1, 4" in refused(paths)[0]


LAYOUT = Paths(ROOT / "tests/projects/backward")
OPERATOR, CALLED = load_operator(LAYOUT, "soft_cap"), load_operator(LAYOUT, "soft_cap_backward")
SPEC, BACKWARD = OPERATOR.spec, CALLED.spec


def with_input(spec: OpSpec, name: str, **fields: object) -> OpSpec:
    inputs = [i for i in spec.inputs if i.name != name]
    return replace(spec, inputs=(*inputs, Input(name=name, **({"type": "T", "dims": ("N", "C")} | fields))))


def with_output(spec: OpSpec, name: str, **fields: object) -> OpSpec:
    outputs = [o for o in spec.outputs if o.name != name]
    return replace(spec, outputs=(*outputs, Output(name=name, **({"type": "T", "shape": SameAs(input="x")} | fields))))


def test_one_that_fits() -> None:
    assert [*mistakes(SPEC, BACKWARD)] == []
    assert without_gradient(SPEC, BACKWARD) == ()
    assert without_gradient(SPEC, replace(BACKWARD, outputs=BACKWARD.outputs[:1])) == ("scale", "shift")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (with_input(BACKWARD, "grad_z"), "its input 'grad_z' is unknown; did you mean 'grad_y'?, allowed: "),
        (with_input(BACKWARD, "x", variadic=True), "its input 'x' is variadic, allowed: inputs that are one tensor"),
        (with_input(BACKWARD, "shift", dims=("C",)), "its input 'shift' is declared optional=False, allowed: True"),
        (with_output(BACKWARD, "grad_scales"), "its output 'grad_scales' is unknown; did you mean 'grad_scale'?"),
        (with_output(BACKWARD, "grad_x", optional=True), "its output 'grad_x' is optional, allowed: optional=False"),
        (replace(BACKWARD, attributes=(Attribute(name="caps", kind="float", default=2.0),)),
         "its attribute 'caps' is unknown; did you mean 'cap'?, allowed: cap"),
        (replace(BACKWARD, attributes=(Attribute(name="cap", kind="int", default=2),)),
         "its attribute 'cap' is int, allowed: float, as there"),
        (replace(BACKWARD, types={"T": ("float32",)}),
         "its 'grad_y' has the type T, which cannot be float64, as 'y' may be"),
        (replace(BACKWARD, torch=None), "it has no torch operator of its own"),
        (replace(BACKWARD, torch=TorchOp(name="b::b", backward="c")), "it names 'c' as its own backward"),
    ],
)  # fmt: skip
def test_one_that_does_not_fit(changed: OpSpec, message: str) -> None:
    (found,) = [*mistakes(SPEC, changed)]
    assert found.startswith(message)


def test_a_type_variable_that_has_two_dtypes_and_an_operator_of_torch() -> None:
    two = {"T": ("float32", "float64"), "U": ("float32", "float64")}
    scale = replace(SPEC.inputs[1], type="U")
    (found,) = [*mistakes(replace(SPEC, types=two, inputs=(SPEC.inputs[0], scale, SPEC.inputs[2])), BACKWARD)]
    assert found == "its 'scale' has the type T, which is float32 for another part where 'scale' is float64"
    torch = TorchOp(name="aten::tanh", overrides=(Override(name="aten::tanh"),), backward="soft_cap_backward")
    texts = [m.text for m in declaration(replace(SPEC, torch=torch), "soft_cap") if m.field == "torch.backward"]
    assert texts == ["allowed without torch.overrides: torch has the gradient of its own operator"]


def test_the_mistakes_are_those_of_the_operator_that_names_it() -> None:
    names = "ops/soft_cap/spec.py: torch.backward: "
    first, broken = ("soft_cap", OPERATOR, ()), ["ops/soft_cap_backward: broken"]
    assert not declared([first, ("soft_cap_backward", CALLED, ())]).failed
    alone = f"{names}no operator 'soft_cap_backward' in ops/; did you mean 'soft_cap'?"
    assert {name: [*lines] for name, lines in declared([first]).failed.items()} == {"soft_cap": [alone]}
    assert declared([first, ("soft_cap_backward", None, broken)]).failed["soft_cap"] == (
        f"{names}'soft_cap_backward' cannot be used: ops/soft_cap_backward: broken",
    )
