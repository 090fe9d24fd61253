from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.files import mark
from opmatrix.engine import database
from opmatrix.engine.database import Fingerprints


def aged(path: Path, text: str) -> Path:
    """Write a file and wait until a further write must change its time stamp."""
    path.write_text(text)
    time.sleep(0.06)
    return path


def test_a_trusted_file_is_not_read_again(tmp_path: Path) -> None:
    path = aged(tmp_path / "a", "one")
    first = Fingerprints({})
    digest = first.digest(str(path))
    known = {str(path): (first.fresh[str(path)][0], "as recorded")}
    assert digest is not None
    assert Fingerprints(known).digest(str(path)) == "as recorded"


@pytest.mark.parametrize("path", ["\0" * 100, "x" * 5000], ids=["null bytes", "long"])
def test_what_is_no_path_is_no_file(path: str) -> None:
    """Such a line is in a damaged list of a step's inputs. The step then runs again."""
    assert mark(path) is None
    assert Fingerprints({}).digest(path) is None


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


def test_the_content_decides(tmp_path: Path) -> None:
    path = aged(tmp_path / "a", "one")
    files = Fingerprints({})
    one = files.digest(str(path))
    os.utime(path, (0, 0))
    assert files.digest(str(path)) == one
    path.write_text("two")
    os.utime(path, (0, 0))
    assert files.digest(str(path)) != one


def test_a_missing_file_has_no_fingerprint(tmp_path: Path) -> None:
    assert Fingerprints({}).digest(str(tmp_path / "a")) is None
    (tmp_path / "file").write_text("")
    assert mark(str(tmp_path / "file" / "below")) is None
