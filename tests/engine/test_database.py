"""The state of a project, fingerprints of files, and what counts as a save: the difference of two looks."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.files import mark
from opmatrix.engine import database
from opmatrix.engine.database import Fingerprints, Journal, StateError, describe
from opmatrix.engine.saved_files import changed, is_ignored, marks_of, of_program, of_project, unsettled
from opmatrix.project.paths import PACKAGE, Paths
from opmatrix.records.step import Fingerprint
from tests.support.projects import write_files


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(str(tmp_path / "build/state.db"), None)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("in the way")
    with pytest.raises(StateError, match=r"cannot open .*state.db"):
        Journal(str(tmp_path / "build/state.db"), None)


def test_a_success_survives_a_killed_process(journal: Journal) -> None:
    journal.record("codegen:a", key="k", detail={"config": "x"})
    other = Journal(journal.name, None)
    assert (other.key("codegen:a"), other.detail("codegen:a"), other.in_("codegen:a")) == ("k", {"config": "x"}, True)
    other.dump()
    journal.dump()


def test_a_forgotten_step_is_known_but_has_no_success(journal: Journal) -> None:
    journal.record("codegen:a", key="k", detail={"config": "x"})
    journal.forget("codegen:a")
    journal.forget("codegen:b")
    journal.dump()
    again = Journal(journal.name, None)
    assert (again.key("codegen:a"), again.detail("codegen:a"), again.in_("codegen:a")) == (None, {"config": "x"}, False)
    assert (again.steps, again.detail("codegen:b")) == (("codegen:a", "codegen:b"), None)
    again.erase(["codegen:a"])
    assert again.steps == ("codegen:b",)
    again.dump()


def test_ignored_tasks_and_fingerprints_of_files_are_kept(journal: Journal) -> None:
    journal.set("codegen:a", "ignore:", "1")
    journal.save_files({"a": ((1, 2, 3, 4), "digest")})
    journal.dump()
    again = Journal(journal.name, None)
    assert (again.get("codegen:a", "ignore:"), again.files) == ("1", {"a": ((1, 2, 3, 4), "digest")})
    again.remove("codegen:a")
    assert again.get("codegen:a", "ignore:") is None
    again.remove_all()
    assert again.files == {}
    again.dump()


def test_contents_of_fingerprints_are_kept_while_they_are_used(journal: Journal) -> None:
    journal.explain([Fingerprint("kept", lambda: "1"), Fingerprint("kept", lambda: "1")])
    journal.record("codegen:a", key="k", detail={"config": '{"spec": "kept", "crowd": true}'})
    journal.record("codegen:b", key="k", detail={"config": "-O3"})
    for i in range(120):
        journal.explain([Fingerprint(f"plan{i}", lambda: "2")])
    assert journal.meaning("kept") == "1", "a step was made from it"
    assert journal.meaning("plan119") == "2"
    assert journal.meaning("plan0") is None


def test_a_build_folder_of_an_older_opmatrix_is_removed_with_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """d912c67 left it: tables without a version, and outputs of steps with other names."""
    build = tmp_path / "build"
    write_files(build, dict.fromkeys(("generated/a/a.cc", "sdk.json", "lock", "wheels/torch.whl"), "x"))
    old = sqlite3.connect(build / "state.db")
    old.execute("create table step (name text primary key, key text, detail text)")
    old.execute("insert into step values ('glue:a', 'k', null)")
    old.commit()
    old.close()
    journal = Journal(str(build / "state.db"), None)
    assert journal.steps == ()
    journal.dump()
    left = {path.relative_to(build).as_posix() for path in build.rglob("*") if path.is_file()}
    assert left == {"state.db", "lock", "wheels/torch.whl"}
    assert capsys.readouterr().err == (
        f"{build} was made by an older opmatrix, whose steps have other names: it was removed, and every step runs "
        "once\n"
    )
    Journal(journal.name, None).dump()
    assert capsys.readouterr().err == ""


def test_a_damaged_byte_of_the_header_costs_the_state_and_never_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every byte of the first 100. For some, SQLite reports that the file is read-only or of a newer format."""
    path = tmp_path / "build/state.db"
    sound = Journal(str(path), None)
    for name in "ab":
        sound.record(f"codegen:{name}", key="k", detail={"config": "{}"})
    sound.dump()
    content = path.read_bytes()
    damaged = []
    for offset in range(100):
        path.write_bytes(content[:offset] + bytes([content[offset] ^ 0xFF]) + content[offset + 1 :])
        try:
            used(path)
        except sqlite3.DatabaseError as error:
            assert describe(error, path).endswith("state.broken. Run doit again")
            damaged.append(offset)
            used(path)
        if path.with_suffix(".broken").exists():
            path.with_suffix(".broken").unlink()
            assert offset in damaged or "is not a usable database" in capsys.readouterr().err
    assert {18, 20} <= {*damaged}


def used(path: Path) -> None:
    journal = Journal(str(path), None)
    assert {journal.key(name) for name in journal.steps} <= {"k"}
    journal.detail("codegen:a")
    journal.forget("codegen:a")
    journal.record("codegen:b", key="k", detail={})
    journal.explain([Fingerprint("kept", lambda: "1")])
    journal.save_files({"a": ((1, 2, 3, 4), "digest")})
    journal.dump()


def aged(path: Path, text: str) -> str:
    """Write a file and wait until a further write must change its time stamp."""
    path.write_text(text)
    time.sleep(0.06)
    return str(path)


def test_the_content_decides(tmp_path: Path) -> None:
    """But a trusted file is not read again."""
    path = aged(tmp_path / "a", "one")
    files = Fingerprints({})
    one = files.digest(path)
    known = {path: (files.fresh[path][0], "as recorded")}
    assert one is not None and Fingerprints(known).digest(path) == "as recorded"
    os.utime(path, (0, 0))
    assert files.digest(path) == one
    (tmp_path / "a").write_text("two")
    os.utime(path, (0, 0))
    assert files.digest(path) != one


def test_a_file_that_was_just_written_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tick of the kernel's clock, a second write can leave size and both time stamps unchanged."""
    path = Path("/dev/shm" if Path("/dev/shm").is_dir() else "/tmp") / f"fingerprint-{os.getpid()}"
    monkeypatch.setattr(database, "time", SimpleNamespace(time_ns=lambda: path.stat().st_ctime_ns))
    try:
        files = Fingerprints({})
        for _ in range(50):
            path.write_text("one")
            one = files.digest(str(path))
            with path.open("r+") as file:
                file.write("two")
            assert files.digest(str(path)) != one
        assert not files.fresh
    finally:
        path.unlink()


@pytest.mark.parametrize(
    "path", ["\0" * 100, "x" * 5000, "a", "file/below"], ids=["null bytes", "long", "missing", "below a file"]
)
def test_what_is_no_path_is_no_file(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a line is in a damaged list of a step's inputs. The step then runs again."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert mark(path) is None
    assert Fingerprints({}).digest(path) is None


@pytest.fixture
def project(tmp_path: Path) -> Paths:
    names = ("ops/a/spec.py", "native/a/kernel.h", "pyproject.toml", "requirements/torch2.9.txt")
    write_files(tmp_path, dict.fromkeys(names, "one"))
    return Paths(tmp_path)


def test_a_save_writes_makes_or_removes_a_file(project: Paths) -> None:
    """What is written for a moment is none."""
    before = marks_of(of_project(project))
    ignored = ("ops/a/.spec.py.swp", "ops/a/spec.py~", "native/a/#kernel.h#", "ops/a/__pycache__/spec.pyc")
    write_files(project.root, dict.fromkeys((*ignored, "native/a/temporary"), ""))
    (project.root / "native/a/temporary").unlink()
    assert changed(before, marks_of(of_project(project))) == []
    write_files(project.root, {"ops/a/spec.py": "two", "ops/b/cases.py": ""})
    (project.root / "native/a/kernel.h").unlink()
    after = marks_of(of_project(project))
    names = [str(Path(path).relative_to(project.root)) for path in changed(before, after)]
    assert names == ["native/a/kernel.h", "ops/a/spec.py", "ops/b/cases.py"]
    assert changed(after, marks_of(of_project(project))) == []
    sources = ("kernel.h", "spec.py", "data.bin", "README.md", "torch2.9.txt")
    assert [name for name in sources if is_ignored(name)] == []


def test_a_file_that_is_gone_or_empty_may_come_back() -> None:
    before = {"a": (1, 1, 3, 1), "b": (1, 1, 0, 2)}
    assert unsettled(before, {"b": (1, 1, 0, 2)})
    assert unsettled(before, before | {"a": (2, 2, 0, 1)})
    assert not unsettled(before, {"a": (2, 2, 4, 1)}), "b was empty before"
    assert not unsettled({}, before)


def test_what_is_watched(project: Paths) -> None:
    """What steps read elsewhere, pins, settings and opmatrix itself."""
    write_files(project.root, {"third_party/inner/x.h": "", "third_party/x.h": ""})
    more = [str(project.root / name) for name in ("third_party", "LICENSE", "ops/a")]
    found = of_project(project, more)
    assert more[0] in found and more[1] in found and more[2] not in found
    names = ("third_party/inner/x.h", "pyproject.toml", "requirements/torch2.9.txt")
    assert {str(project.root / name) for name in names} < marks_of(found).keys()
    assert str(PACKAGE / "engine/saved_files.py") in marks_of(of_program(project))
    assert str(project.root / "dodo.py") in of_program(project)
