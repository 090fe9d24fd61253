from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from opmatrix.engine.database import Journal, StateError, describe
from opmatrix.records.step import Fingerprint


def test_a_success_survives_a_killed_process(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "build/state.db"), None)
    journal.record("codegen:a", key="k", detail={"config": "x"})
    other = Journal(journal.name, None)
    assert (other.key("codegen:a"), other.detail("codegen:a"), other.in_("codegen:a")) == ("k", {"config": "x"}, True)
    other.dump()
    journal.dump()


def test_a_forgotten_step_is_known_but_has_no_success(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
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


def test_ignored_tasks_are_kept(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
    journal.set("codegen:a", "ignore:", "1")
    journal.dump()
    again = Journal(journal.name, None)
    assert again.get("codegen:a", "ignore:") == "1"
    again.remove("codegen:a")
    assert again.get("codegen:a", "ignore:") is None
    again.dump()


def test_fingerprints_of_files_are_kept(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
    journal.save_files({"a": ((1, 2, 3, 4), "digest")})
    assert journal.files == {"a": ((1, 2, 3, 4), "digest")}
    journal.remove_all()
    assert journal.files == {}
    journal.dump()


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("in the way")
    with pytest.raises(StateError, match=r"cannot open .*state.db"):
        Journal(str(tmp_path / "build/state.db"), None)


def test_contents_of_fingerprints_are_kept_while_they_are_used(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
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
    (build / "generated/a").mkdir(parents=True)
    (build / "wheels").mkdir()
    for name in ("generated/a/a.cc", "sdk.json", "lock", "wheels/torch.whl"):
        (build / name).write_text("x")
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
