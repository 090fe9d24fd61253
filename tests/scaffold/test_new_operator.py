"""All files of a new operator are written or none, and nothing is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths
from opmatrix.scaffold import new_operator, render
from opmatrix.scaffold.draft import Draft
from opmatrix.scaffold.from_torch_schema import from_schema


def draft(name: str = "one", *, namespace: str = "my", op_type: str = "") -> Draft:
    return from_schema(f"{namespace}::{name}(Tensor x) -> Tensor", domain="my.domain", op_type=op_type)


def add(paths: Paths, *drafts: Draft) -> None:
    render.require_absent(paths, [d.spec for d in drafts])
    render.write(paths, {path: text for d in drafts for path, text in render.render(d).items()})


def below(root: Path) -> list[str]:
    """Return what is in a project, but for build/, where declarations are read."""
    return sorted(found for p in root.rglob("*") if not (found := str(p.relative_to(root))).startswith("build"))


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path)


@pytest.mark.parametrize("there", ["ops/one/notes.txt", "native/one/torch.cc", "ops/one/spec.py"])
def test_existing_files_are_named_and_kept(paths: Paths, there: str) -> None:
    path = paths.root / there
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = below(paths.root)
    with pytest.raises(UsageError, match=f"^{there}: there already, and nothing is overwritten"):
        add(paths, draft())
    assert below(paths.root) == before and path.read_text() == "mine"


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (draft("two", op_type="One"), "onnx: 'my.domain::One'"),
        (from_schema("my::one(Tensor x) -> Tensor", domain="other", name="two"), "torch: 'my::one'"),
    ],
)
def test_a_name_that_exists_is_refused_before_anything_is_written(paths: Paths, second: Draft, message: str) -> None:
    add(paths, draft())
    before = below(paths.root)
    with pytest.raises(UsageError) as raised:
        add(paths, second)
    assert f"ops/two/spec.py: {message} is taken by ops/one/spec.py; rename one" in str(raised.value)
    assert "Nothing was written." in str(raised.value) and below(paths.root) == before


def test_an_invalid_operator_does_not_prevent_a_new_one(paths: Paths) -> None:
    add(paths, draft())
    paths.spec("one").write_text("SPEC = 1 / 0")
    add(paths, draft("two"))
    assert paths.spec("two").is_file()


@pytest.mark.parametrize("broken", ["write_text", "rename", "last rename"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["OSError", "Ctrl-C"])
def test_a_failure_leaves_no_files(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, broken: str, error: BaseException
) -> None:
    add(paths, draft())
    before = below(paths.root)
    method = broken.removeprefix("last ")
    original, calls = getattr(Path, method), 0

    def fails(path: Path, *arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == (4 if broken == "last rename" else 2):
            raise error
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, method, fails)
    with pytest.raises(type(error)):
        add(paths, draft("two"), draft("three"))
    monkeypatch.undo()
    assert calls >= 2 and below(paths.root) == before


def test_the_declaration_appears_last(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A doit that runs at the same time finds no operator or a complete one."""
    targets = []
    original = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, target: (targets.append(target), original(path, target))[1])
    add(paths, draft())
    assert [str(t.relative_to(paths.root)) for t in targets] == ["native/one", "ops/one"]


@pytest.fixture
def styled(paths: Paths) -> Paths:
    """A project with settings of both formatters."""
    (paths.root / "pyproject.toml").write_text("[tool.ruff]\nline-length = 60\n")
    (paths.root / ".clang-format").write_text("BasedOnStyle: Google\nColumnLimit: 60\n")
    return paths


def test_files_are_formatted_by_ruff_and_clang_format(styled: Paths) -> None:
    """They use the settings of the project, and leave no file in it."""
    before = render.render(draft())
    after = render.formatted(styled.root, before)
    assert below(styled.root) == [".clang-format", "pyproject.toml"] and [*after] == [*before]
    assert {path for path in before if after[path] != before[path]} == {
        "native/one/kernel.h", "ops/one/cases.py", "ops/one/spec.py",
    }  # fmt: skip
    render.write(styled, after)
    for command in (["ruff", "format", "--no-cache", "--check", "ops"], ["clang-format", "-n", "-Werror", "kernel.h"]):
        cwd = styled.root if command[0] == "ruff" else styled.kernel("one").parent
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert render.formatted(styled.root, after) == after


@pytest.mark.parametrize("does", ["", "exit 2", "cat; exit 1", "echo no; kill -9 $$", "exit 0", "printf '\\377'"])
def test_a_formatter_that_fails_or_is_absent_changes_nothing(
    styled: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str
) -> None:
    files = render.render(draft())
    (tmp_path / "bin").mkdir()
    for program in ("ruff", "clang-format") if does else ():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    if not does:
        monkeypatch.setenv("PATH", str(tmp_path))
    assert render.formatted(styled.root, files) == files


def test_a_project_without_a_clang_format_file_keeps_the_kernel_unformatted(paths: Paths) -> None:
    files = render.render(draft())
    assert render.formatted(paths.root, files)["native/one/kernel.h"] == files["native/one/kernel.h"]


def nodes_of(*operators: str) -> dict[str, list[dict[str, Any]]]:
    """Return a node for each ``domain::OpType``, as from_onnx.by_operator does."""
    one = {"name": "v", "dtype": "float32", "shape": [2]}
    common = {"name": "n", "imported": 1, "inputs": [one], "outputs": [one], "attributes": {}}
    return {o: [common | dict(zip(("domain", "op_type"), o.split("::"), strict=True))] for o in operators}


# At 71b51ad8: two operators of each row had one folder, and the last two rows were refused.
@pytest.mark.parametrize(
    ("operators", "folders"),
    [
        (["my.dom::FooBar", "my.dom::Foobar", "my.dom::foo_bar"], ["foo_bar", "foobar", "foo_bar_2"]),  # handed
        (["my.dom::Foo", "your.dom::Foo"], ["foo", "foo_2"]),  # handed
        (["a::Foo", "b::Foo", "c::Foo"], ["foo", "foo_2", "foo_3"]),
        (["a::Foo_2", "a::Foo", "b::Foo"], ["foo_2", "foo", "foo_3"]),
        (["a::HTTPGet", "a::HttpGet"], ["http_get", "http_get_2"]),
        (["a::Int", "a::IntOp"], ["int_op", "int_op_2"]),
        (["a::_X", "a::X_", "a::x"], ["x", "x_2", "x_3"]),
        (["a::" + "L" * 150, "a::" + "l" * 151], ["l" * 90, "l" * 90 + "_2"]),
        (["a::_", "a::__"], ["op", "op_2"]),
    ],
)
def test_each_operator_has_a_folder_of_its_own(operators: list[str], folders: list[str], paths: Paths) -> None:
    made = [*new_operator.each(nodes_of(*operators), "m.onnx", "")]
    assert [d.spec.name for d in made] == folders
    assert [f"{d.spec.onnx.domain}::{d.spec.onnx.op_type}" for d in made] == operators
    add(paths, *made)
    assert sorted(p.name for p in (paths.root / "ops").iterdir()) == sorted(folders)


def test_the_folder_that_is_another_operators_is_named() -> None:
    _, second = new_operator.each(nodes_of("my.dom::Foo", "your.dom::Foo"), "m.onnx", "")
    assert "your.dom::Foo is in ops/foo_2/, because ops/foo/ is that of my.dom::Foo" in second.notes
