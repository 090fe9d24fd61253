"""The wheel's settings in pyproject.toml, and the messages for wrong ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.project.paths import Paths
from opmatrix.wheel import settings
from opmatrix.wheel.settings import Dist, parse

NAMED = {"name": "my_ops", "version": "1.0.0"}
KERNELS = ("add_and_round", "custom_op_one", "custom_op_two", "dual_residual", "group_norm", "nms")


@pytest.fixture(scope="module")
def operators() -> tuple[Operator, ...]:
    return load_operators(Paths(Path(__file__).parents[2]))


def read(known: tuple[Operator, ...], root: Path, **table: Any) -> Dist:
    return parse({**NAMED, **table}, known, root=root)


def test_all_operators_with_a_library_are_the_default(operators: tuple[Operator, ...], tmp_path: Path) -> None:
    found = read(operators, tmp_path)
    assert found.operators == KERNELS
    assert found.summary == f"Operators for torch and ONNX Runtime: {', '.join(KERNELS)}."
    assert found.licenses == ()
    (tmp_path / "LICENSE").write_text("")
    assert read(operators, tmp_path).licenses == ("LICENSE",)


def test_used_operators_are_included(operators: tuple[Operator, ...], tmp_path: Path) -> None:
    found = read(operators, tmp_path, operators=["add_and_round", "gelu"])
    assert found.operators == ("add_and_round", "custom_op_one", "custom_op_two", "gelu")
    assert [o.name for o in found.chosen(operators)] == list(found.operators)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({"name": None}, "name: found None, allowed: what Python can import"),
    "a dash": ({"name": "my-ops"}, "name: found 'my-ops', allowed: what Python can import"),
    "two underscores": ({"name": "my__ops"}, "name: found 'my__ops', allowed"),
    "a keyword": ({"name": "lambda"}, "allowed: a name that is not taken"),
    "the standard library": ({"name": "json"}, "allowed: a name that is not taken"),
    "a framework": ({"name": "onnx"}, "allowed: a name that is not taken"),
    "no version": ({"version": 1}, "version: found 1, allowed: a version as PEP 440 has it"),
    "no normal form": ({"version": "1.0-rc1"}, "version: found '1.0-rc1', allowed"),
    "a field": ({"operator": []}, "operator: unknown setting, allowed: name, version, operators"),
    "near": ({"licence": "MIT"}, "did you mean 'license'?"),
    "no list": ({"operators": "nms"}, "operators: found 'nms', allowed: a list of folders of ops/: add_and_round,"),
    "none": ({"operators": []}, "operators: found [], allowed"),
    "unknown": ({"operators": ["nmss"]}, "no operator 'nmss' in ops/, there is: add_and_round, "),
    "twice": ({"operators": ["nms", "nms"]}, "allowed: each once"),
    "no library": (
        {"operators": ["gelu"]},
        "none of gelu has a library that opmatrix builds, so ",
    ),
    "a summary": ({"summary": "a\nb"}, "summary: found 'a\\nb', allowed: a string of one line"),
    "no file": ({"license-files": ["COPYING"]}, "license-files: found 'COPYING', allowed: a file of the project"),
    "outside": ({"license-files": ["../LICENSE"]}, "license-files: found '../LICENSE', allowed: a file of the project"),
    "no files": ({"license-files": "LICENSE"}, "license-files: found 'LICENSE', allowed: a list of files"),
    "third parties": ({"third-party-licenses": ["MPL2"]}, "third-party-licenses: found ['MPL2'], allowed: files by"),
    "third party": (
        {"third-party-licenses": {"eigen": ["MPL2"]}},
        "third-party-licenses: eigen: found 'MPL2', allowed",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_reported(name: str, operators: tuple[Operator, ...], tmp_path: Path) -> None:
    table, text = WRONG[name]
    with pytest.raises(UsageError) as raised:
        read(operators, tmp_path, **table)
    (line,) = str(raised.value).splitlines()
    assert line.startswith("pyproject.toml: [tool.opmatrix.dist]: ")
    assert text in line


def test_every_mistake_is_reported_at_once(operators: tuple[Operator, ...], tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        read(operators, tmp_path, name="my ops", version="one", operators=["x"])
    assert len(str(raised.value).splitlines()) == 3


def test_a_handwritten_binding_cannot_be_linked(tmp_path: Path) -> None:
    existing = load_operators(Paths(Path(__file__).parents[1] / "projects/existing"))
    with pytest.raises(UsageError, match=r"'damped' has a binding by hand, native/damped/torch\.cc, which cannot"):
        read(existing, tmp_path, operators=["damped"])


def test_a_handwritten_binding_is_left_out_by_default(operators: tuple[Operator, ...], tmp_path: Path) -> None:
    """Every doit command reads the settings."""
    existing = load_operators(Paths(Path(__file__).parents[1] / "projects/existing"))
    assert read((*operators, *existing), tmp_path).operators == KERNELS
    (tmp_path / "pyproject.toml").write_text('[tool.opmatrix.dist]\nname = "my_ops"\nversion = "1.0.0"\n')
    assert settings.read(Paths(tmp_path), existing) is None
    assert settings.read(Paths(tmp_path), operators) is not None


@pytest.mark.parametrize("version", ["0.1", "2!1.0", "1.0a1", "1.0rc2.post3.dev4", "1.0.0+cpu.1"])
def test_valid_versions(version: str, operators: tuple[Operator, ...], tmp_path: Path) -> None:
    assert read(operators, tmp_path, version=version).version == version
