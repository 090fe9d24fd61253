"""A published version is compared with the declaration: what may change, and what may not."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import SpecError
from opmatrix.declaration import published
from opmatrix.declaration.load import Operator, load_operator, load_operators
from opmatrix.project.paths import Paths
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


def test_published_versions_of_this_project_match_their_declarations() -> None:
    found = {o.name: o.published for o in load_operators(Paths(ROOT))}
    assert found["group_norm"] == (1,)
    assert sum(map(bool, found.values())) == 1


def test_the_text_of_a_schema_is_reproducible(paths: Paths) -> None:
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


@pytest.mark.parametrize(
    ("old", "new", "field", "was", "now"),
    [
        (TYPES, '("float32",)', "types['T']", "['float32', 'float64', 'float16', 'bfloat16']", "found ['float32']"),
        ('type="float32"', 'type="int64"', "inputs['num_groups'].type", "float32", "found int64"),
        (EPSILON, EPSILON.replace("default=1e-5, ", ""), f"{OF_EPSILON}.default", "1e-05", "found nothing"),
        (EPSILON, f"{EPSILON}, maximum=1.0", f"{OF_EPSILON}.maximum", "nothing", "found 1.0"),
        (EPSILON, EPSILON.replace('"eps"', '"epsi"'), f"{OF_EPSILON}.torch_name", "eps", "found epsi"),
        (EPSILON, EPSILON.replace('"float"', '"int"').replace("1e-5", "1"), f"{OF_EPSILON}.kind", "float", "found int"),
        (BIAS, BIAS.replace('("C",)', "None"), f"{OF_BIAS}.dims", "['C']", "found nothing"),
        (BIAS, f"{BIAS}, optional=True", f"{OF_BIAS}.optional", "nothing", "found True"),
        (BIAS, BIAS.replace("bias", "summand"), OF_BIAS, "it", "found nothing of that name"),
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
    assert now in found
    assert BREAKS in found
    assert found.endswith(GIVEN)


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


def test_one_change_is_one_message(paths: Paths) -> None:
    change(paths, ("default=1e-5", "default=1e-4"))
    assert len(refused(paths)) == 1


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


def test_a_missing_schema_is_reported(paths: Paths) -> None:
    (paths.root / SCHEMA).unlink()
    (found,) = refused(paths)
    assert "No such file" in found
