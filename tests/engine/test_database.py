from __future__ import annotations

from pathlib import Path

import pytest
from opmatrix.engine.database import Journal, StateError
from opmatrix.step import Fingerprint


def test_a_success_is_there_without_an_orderly_end(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "build/state.db"), None)
    journal.record("glue:a", key="k", detail={"config": "x"})
    other = Journal(journal.name, None)
    assert (other.key("glue:a"), other.detail("glue:a"), other.in_("glue:a")) == ("k", {"config": "x"}, True)
    other.dump()
    journal.dump()


def test_a_forgotten_step_is_known_but_has_no_success(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
    journal.record("glue:a", key="k", detail={"config": "x"})
    journal.forget("glue:a")
    journal.forget("glue:b")
    journal.dump()
    again = Journal(journal.name, None)
    assert (again.key("glue:a"), again.detail("glue:a"), again.in_("glue:a")) == (None, {"config": "x"}, False)
    assert (again.steps, again.detail("glue:b")) == (("glue:a", "glue:b"), None)
    again.erase(["glue:a"])
    assert again.steps == ("glue:b",)
    again.dump()


def test_what_doit_notes_is_kept(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
    journal.set("glue:a", "ignore:", "1")
    journal.dump()
    again = Journal(journal.name, None)
    assert again.get("glue:a", "ignore:") == "1"
    again.remove("glue:a")
    assert again.get("glue:a", "ignore:") is None
    again.dump()


def test_files(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
    journal.save_files({"a": ((1, 2, 3, 4), "digest")})
    assert journal.files() == {"a": ((1, 2, 3, 4), "digest")}
    journal.remove_all()
    assert journal.files() == {}
    journal.dump()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "build").write_text("in the way")
    with pytest.raises(StateError, match=r"cannot open .*state.db"):
        Journal(str(tmp_path / "build/state.db"), None)


def test_what_fingerprints_stand_for_is_kept_and_in_the_end_forgotten(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "state.db"), None)
    journal.explain([Fingerprint("kept", lambda: "1"), Fingerprint("kept", lambda: "1")])
    journal.record("glue:a", key="k", detail={"config": '{"spec": "kept", "crowd": true}'})
    journal.record("glue:b", key="k", detail={"config": "-O3"})
    for i in range(120):
        journal.explain([Fingerprint(f"plan{i}", lambda: "2")])
    assert journal.meaning("kept") == "1", "a step was made from it"
    assert journal.meaning("plan119") == "2"
    assert journal.meaning("plan0") is None
