"""What counts as a save: the difference of two looks, not what the file system reports in between."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.engine.saved_files import changed, is_ignored, marks_of, of_program, of_project, unsettled
from opmatrix.project.paths import PACKAGE, Paths


@pytest.fixture
def project(tmp_path: Path) -> Paths:
    for name in ("ops/a/spec.py", "native/a/kernel.h", "pyproject.toml", "requirements/torch2.9.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    return Paths(tmp_path)


def test_what_was_written_made_or_removed(project: Paths) -> None:
    before = marks_of(of_project(project))
    (project.root / "ops/a/spec.py").write_text("two")
    (project.root / "native/a/kernel.h").unlink()
    (project.root / "ops/b").mkdir()
    (project.root / "ops/b/cases.py").write_text("")
    after = marks_of(of_project(project))
    names = [str(Path(path).relative_to(project.root)) for path in changed(before, after)]
    assert names == ["native/a/kernel.h", "ops/a/spec.py", "ops/b/cases.py"]
    assert changed(after, marks_of(of_project(project))) == []


def test_what_is_written_for_a_moment_is_no_change(project: Paths) -> None:
    before = marks_of(of_project(project))
    for name in ("ops/a/.spec.py.swp", "ops/a/spec.py~", "native/a/#kernel.h#", "ops/a/__pycache__/spec.pyc"):
        (project.root / name).parent.mkdir(exist_ok=True)
        (project.root / name).write_text("")
    temporary = project.root / "native/a/temporary"
    temporary.write_text("")
    temporary.unlink()
    assert changed(before, marks_of(of_project(project))) == []


@pytest.mark.parametrize("name", ["kernel.h", "spec.py", "data.bin", "README.md", "torch2.9.txt"])
def test_every_other_name_is_a_source(name: str) -> None:
    assert not is_ignored(name)


def test_a_file_that_is_gone_or_empty_may_come_back() -> None:
    before = {"a": (1, 1, 3, 1), "b": (1, 1, 0, 2)}
    assert unsettled(before, {"b": (1, 1, 0, 2)})
    assert unsettled(before, before | {"a": (2, 2, 0, 1)})
    assert not unsettled(before, {"a": (2, 2, 4, 1)}), "b was empty before"
    assert not unsettled({}, before)


def test_what_steps_read_elsewhere(project: Paths) -> None:
    (project.root / "third_party/inner").mkdir(parents=True)
    (project.root / "third_party/inner/x.h").write_text("")
    (project.root / "third_party/x.h").write_text("")
    more = [str(project.root / name) for name in ("third_party", "LICENSE", "ops/a")]
    found = of_project(project, more)
    assert more[0] in found and more[1] in found and more[2] not in found
    assert {str(project.root / "third_party/inner/x.h")} < marks_of(found).keys()


def test_pins_settings_and_opmatrix_itself(project: Paths) -> None:
    named = {str(project.root / name) for name in ("pyproject.toml", "requirements/torch2.9.txt")}
    assert named < marks_of(of_project(project)).keys()
    assert str(PACKAGE / "engine/saved_files.py") in marks_of(of_program(project))
    assert str(project.root / "dodo.py") in of_program(project)
