"""Messages for the log alone: the current case of a step, and messages that are too long for the terminal. A disk that
cannot be written is named in one message.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics import step_log
from opmatrix.basics.errors import disk_fault
from opmatrix.basics.files import write_bytes, write_list, write_parts, write_text
from opmatrix.engine.server_pool import Ending
from opmatrix.engine.step_failure import failure_of, leave_verdict, read_output
from opmatrix.project.cells import Cell
from opmatrix.records.step import Step
from opmatrix.records.verdict import read

FAULTS = {name: f"my_op-{name}: wrong" for name in ("a", "b", "c")}


def test_the_log_has_the_current_case_and_the_terminal_does_not(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stage that is run by hand has none; the output of C++ is in the log in order."""
    step_log.now_running("case seed")
    assert capfd.readouterr().out == ""
    monkeypatch.setenv(step_log.LOGGED, "1")
    step_log.now_running("model static")
    step_log.now_running("case seed")
    step_log.detail("a graph\n  of two lines")
    print("last words")
    log = capfd.readouterr().out
    assert log == "# at model static\n# at case seed\n# a graph\n#   of two lines\nlast words\n"
    assert step_log.visible_lines(log) == "last words" and step_log.last_running(log) == "case seed"
    assert step_log.last_running("last words\n") == ""
    with pytest.raises(ZeroDivisionError), step_log.capture_stdout():
        os.write(1, b"graph(\n")
        raise ZeroDivisionError
    with step_log.capture_stdout():
        pass
    print("after")
    assert capfd.readouterr().out.splitlines() == ["# graph(", "after"]


@pytest.mark.parametrize("logged", [False, True])
def test_three_faults_are_shown_completely_and_one_line_has_the_number_and_place_of_more(
    logged: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if logged:
        monkeypatch.setenv(step_log.LOGGED, "1")

    def lines(faults: dict[str, str]) -> list[str]:
        return step_log.summarize_faults(faults, subject="my_op", where="here").splitlines()

    where = "the log, and here" if logged else "here"
    assert lines(FAULTS) == [*FAULTS.values()]
    assert capsys.readouterr().out == ""
    more = FAULTS | {"d, e": "my_op-d: wrong. Also e", "f": "my_op-f: wrong"}
    assert lines(more) == [*FAULTS.values(), f"my_op: 3 more cases are wrong: d, e, f. In full: {where}"]
    assert capsys.readouterr().out == ("# my_op-d: wrong. Also e\n# my_op-f: wrong\n" if logged else "")
    assert lines({f"c{n}": "wrong" for n in range(40)})[3].endswith(f"c13, c14, .... In full: {where}")


@pytest.mark.parametrize(
    ("at", "case"),
    [("model static\n# at case seed\n# at case nan", " --case nan"), ("a, b in 4 threads at once", "")],
    ids=["in a case", "outside"],
)
def test_a_crash_names_what_ran_and_replays_it(tmp_path: Path, at: str, case: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"$ command\n# at {at}\nFatal Python error\n")
    cell = Cell.parse("torch2.13-dynamo-opset18-ort1.31")
    step = Step(
        group="verify", name=f"my_op-custom@{cell}", command=("verify", "my_op"), operator="my_op", lowering="custom",
        cell=cell, server="ort", verdict=str(tmp_path / "verdict.json"),
    )  # fmt: skip
    leave_verdict(step, failure_of(step, Ending(status=-11, seconds=0.4, cpu=0.0, stopped=""), log))
    message = read(tmp_path / "verdict.json").detail
    assert message.splitlines()[:3] == [
        f"died of SIGSEGV after 0.4 s, at {at.rpartition('# at ')[2]}",
        "Fatal Python error",
        f"Replay: python -m opmatrix verify my_op{case}",
    ]
    assert f"gdb --args python -m opmatrix verify my_op{case} --debug" in message
    assert read_output(log) == "Fatal Python error"


REMEDY = "Is the folder writable, and is there space left?"
# At 71b51ad8: no message named the file.
WRITERS = {
    "bytes": lambda path: write_bytes(path, b"x"),
    "text": lambda path: write_text(path, "x"),
    "parts": lambda path: write_parts(path, [b"x", memoryview(b"y")]),
    "list": lambda path: write_list(path, ["x"], root=path.parent),
    "in place of another": lambda path: (path.parent.mkdir(), path.touch(), write_text(path, "x")),
}


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each write fails as that of a full disk, whose error names no file."""
    opened = Path.open

    class Full:
        def __init__(self, file: object) -> None:
            self._file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()  # type: ignore[attr-defined]  # a file of any kind

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        file = opened(path, mode, *arguments, **options)  # type: ignore[call-overload]  # as it was called
        return Full(file) if "w" in mode else file

    monkeypatch.setattr(Path, "open", open_full)
    yield


@pytest.mark.parametrize("writer", WRITERS)
def test_a_write_names_its_file(full: None, tmp_path: Path, writer: str) -> None:
    path = tmp_path / "build" / "a.json"
    with pytest.raises(OSError) as caught:
        WRITERS[writer](path)
    assert disk_fault(caught.value) == f"cannot write '{path}': No space left on device. {REMEDY}"
    assert [one.name for one in path.parent.iterdir()] == (["a.json"] if path.exists() else []), "no half file is left"


# At 71b51ad8: no message named a folder.
@pytest.mark.parametrize(
    ("number", "rooms", "named"),
    [
        (errno.ENOSPC, {"build": (0, 9)}, " 'build'"),
        (errno.ENOSPC, {"build": (9, 0)}, " 'build'"),
        (errno.EDQUOT, {"build": (0, 9)}, " 'build'"),
        (errno.ENOSPC, {"build": (9, 9), "/tmp/of_tests": (0, 9)}, " '/tmp/of_tests'"),
        (errno.ENOSPC, {"/tmp/of_tests": (9, 9), ".": (0, 9)}, " '.'"),
        (errno.EIO, {"build": (9, 9)}, ""),
        (errno.EACCES, {"build": (0, 9)}, None),
    ],
)
def test_the_full_disk_is_named_where_the_error_names_no_file(
    monkeypatch: pytest.MonkeyPatch, number: int, rooms: dict[str, tuple[int, int]], named: str | None
) -> None:
    """`rooms`: percent of blocks and of inodes that are free, by folder."""

    def statvfs(folder: str) -> SimpleNamespace:
        if folder not in rooms:
            raise FileNotFoundError
        blocks, inodes = rooms[folder]
        return SimpleNamespace(f_blocks=10_000, f_bavail=blocks * 100, f_files=10_000, f_favail=inodes * 100)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp/of_tests")
    error = OSError(number, os.strerror(number))
    assert disk_fault(error) == ("" if named is None else f"cannot write{named}: {os.strerror(number)}. {REMEDY}")
