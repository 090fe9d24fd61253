"""The working folder of a step: what is written there goes, however its process ends."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from opmatrix.engine.server_pool import Pool, ServerError
from opmatrix.project import work_folder
from opmatrix.project.paths import Paths
from tests.engine.conftest import begin
from tests.incremental.conftest import wait_for
from tests.support.projects import write_files

LONG = 1000  # seconds: longer than pytest lets a test take


def entry(arguments: Sequence[str]) -> int:
    """Run a step that writes by a relative path and then ends in some way."""
    root = Path.cwd()
    with work_folder.inside(root):
        return _write(root, *arguments)


def _write(root: Path, what: str) -> int:
    Path("left").mkdir()
    Path("left/file").write_text("x")
    if what == "reads":
        assert Path("top.txt").read_text() == Path("ops/double/table.txt").read_text() == "read"
    if what in ("process", "again"):  # as of `sanitize`, whose processes run stages of their own
        words = [sys.executable, "-c", "import test_work_folder, sys; sys.exit(test_work_folder.again())"]
        return subprocess.run(words, cwd=root).returncode
    if what == "fork":
        if os.fork() == 0:
            return 0
        os.wait()
    if what == "daemon":
        subprocess.Popen(["sh", "-c", "while :; do touch more; done"], start_new_session=True)
        wait_for(Path("more").exists)
    if what == "elsewhere":
        os.chdir("/")
    (root / "written").write_text(str(Path("/proc/self/cwd").readlink()))
    if what == "raises":
        raise RuntimeError
    if what == "exits":
        os._exit(0)
    if what == "crashes":
        ctypes.string_at(0)
    while what == "prints":
        os.write(1, b"x" * 999_999 + b"\n")
    if what in ("hangs", "hangs for long"):
        time.sleep(LONG)
    return 0


def again() -> int:
    """Run in a process of the step: in the same folder, which stays when this process ends."""
    with work_folder.inside(Path.cwd()):
        known = Path("left/file").is_file()
    return 0 if known and Path(os.environ[work_folder.WORK], "left").is_dir() else 1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    write_files(root, {"dodo.py": "", "top.txt": "read", "ops/double/table.txt": "read"})
    return root


def left(root: Path) -> list[str]:
    """Return what is in the project but was not there before."""
    known = {"dodo.py", "top.txt", "ops", "build", "lock", "written"}
    work = root / "build/work"
    return sorted({p.name for p in root.iterdir()} - known) + (
        [p.name for p in work.iterdir()] if work.is_dir() else []
    )


# At 71b51ad8: the files of each stayed in the project; `process` could not be tried.
ENDS = {
    "returns": (0, ""), "reads": (0, ""), "process": (0, ""), "fork": (0, ""), "daemon": (0, ""), "elsewhere": (0, ""),
    "raises": (1, ""), "exits": (0, ""), "crashes": (-11, ""), "prints": (-9, "log"), "hangs": (-6, "time"),
}  # fmt: skip


@pytest.mark.parametrize("server", [None, "any"])
@pytest.mark.parametrize("what", ENDS)
def test_nothing_stays_of_a_step(pool: Pool, folder: Path, what: str, server: str | None) -> None:
    log, seconds = folder / "build/log/x", 2 if what == "hangs" else LONG
    ending = pool.run([what], server=server, log=log, seconds=seconds)
    while what == "hangs" and not (folder / "written").exists():  # a busy machine stops it before it has begun
        seconds *= 2
        ending = pool.run([what], server=server, log=log, seconds=seconds)
    # SIGKILL follows SIGABRT after a second, which a busy machine may need to end the process.
    status = -6 if what == "hangs" and ending.status == -9 else ending.status
    assert (status, ending.stopped) == ENDS[what], log.read_text()
    wait_for(lambda: left(folder) == [])  # a daemon that is killed still ends
    ran_in = (folder / "written").read_text() if what != "process" else "/"
    assert ran_in == "/" or ran_in.startswith(str(folder / "build/work"))


@pytest.mark.parametrize("server", [None, "any"])
def test_nothing_stays_of_a_run_that_ends(pool: Pool, folder: Path, server: str | None) -> None:
    """As at Ctrl-C, which closes the sockets of the servers."""
    log = folder / "build/log/x"
    step = begin(pool.run, ["hangs for long"], server=server, log=log, seconds=LONG)
    wait_for((folder / "written").exists)
    pool.close()
    assert isinstance(step.exception(), ServerError) and left(folder) == []


def test_the_next_run_removes_what_a_killed_server_left(pool: Pool, folder: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for name in (str(ended.pid), f"{ended.pid}-0", str(os.getpid())):
        (folder / "build/work" / name).mkdir(parents=True)
    work_folder.remove_left(Paths(folder))
    assert left(folder) == [str(os.getpid())]
    pool.run(["returns"], server=None, log=folder / "build/log/x", seconds=LONG)


def test_a_link_is_removed_and_not_what_it_points_to(folder: Path) -> None:
    made = folder / "build/work/1"
    work_folder.make(made, folder)
    assert {p.name for p in made.iterdir()} == {"top.txt", "ops"}
    work_folder.make(made, folder)  # of a process that had the same number
    work_folder.remove(made)
    assert (folder / "ops/double/table.txt").read_text() == "read"
