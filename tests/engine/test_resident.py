"""The resident process, where what it depends on fails it."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.incremental.conftest import start as start_program
from tests.incremental.conftest import wait_for
from tests.support.projects import write_files
from tests.support.watched import Watched

pytestmark = pytest.mark.incremental
LOOP = """
import mmap, os, shutil, signal, time
from pathlib import Path
from opmatrix.engine import resident
from opmatrix.engine.resident import Loop
from opmatrix.basics.errors import OpmatrixError
from opmatrix.project.paths import Paths

root = Path.cwd()

def turn(resident):
    {turn}
    return 0

def say(files):
    {say}

resident._PATIENCE = 1.0  # what ends in a turn that must, ends at once
loop = Loop(Paths(root), entry="", turn=turn, say=say, note=print)
try:
    print(loop.run(), loop.interrupted, flush=True)
except OpmatrixError as error:
    print(error)
"""

BEGAN = "Path('../began').touch()"  # a file in a folder that is not watched
Start = Callable[..., Watched]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a loop in the folder `project`, and returns when its first turn has begun."""
    root = tmp_path / "project"
    started: list[Watched] = []

    def start(*, turn: str = BEGAN, say: str = "pass") -> Watched:
        write_files(root, {"ops/mapped.py": "one", "dodo.py": "", "pyproject.toml": "", "ops/spec.py": ""})
        started.append(Watched(start_program(root, sys.executable, "-c", LOOP.format(turn=turn, say=say))))
        wait_for((tmp_path / "began").exists)
        return started[0]

    yield start
    for watched in started:
        watched.end(signal.SIGKILL)


def test_a_project_that_is_removed_while_a_turn_is_about_to_begin(tmp_path: Path, start: Start) -> None:
    watched, root = start(say="shutil.rmtree(root); Path.cwd()"), tmp_path / "project"
    shutil.copyfile(__file__, root / "ops/spec.py")
    assert watched.process.wait() == 0
    watched.end()
    assert watched.text == f"doit watch: the project's folder '{root}' is gone\n"


def test_a_file_that_is_written_without_an_event(tmp_path: Path, start: Start) -> None:
    write = "f = open('ops/mapped.py', 'r+'); mmap.mmap(f.fileno(), 3)[:] = b'two'"
    watched = start(say=f"print(files[0].name, flush=True); {write}")
    shutil.copyfile(__file__, tmp_path / "project/ops/spec.py")
    wait_for(lambda: "mapped.py\n" in watched.text)


def test_a_turn_that_does_not_hear_it_must_end_is_killed(start: Start) -> None:
    watched = start(turn=f"signal.signal(signal.SIGINT, signal.SIG_IGN); {BEGAN}; time.sleep(1000)")
    watched.end(signal.SIGINT)
    assert watched.text == "130 True\n", "which is interrupted, as one that ends in time"


def test_settings_that_are_broken_before_the_first_turn_has_ended(tmp_path: Path, start: Start) -> None:
    """Only a usage error of the command line ends the process."""
    project, second = tmp_path / "project", tmp_path / "second"
    name = "Path('../second').write_text(str(os.getpid()))"
    watched = start(
        turn="broken = Path('broken').exists()  # as the turn begins: the test goes on when it has\n"
        f"    {BEGAN}\n    if broken:\n        {name}\n        return 2\n    time.sleep(1000)",
        say="print(files[0].name, flush=True)",
    )
    (project / "broken").touch()
    (project / "pyproject.toml").write_text("# saved")
    wait_for(lambda: second.exists() and second.read_text() != "")
    wait_for(lambda: not Path("/proc", second.read_text()).exists())
    (project / "ops/spec.py").write_text("# saved")
    wait_for(lambda: "spec.py\n" in watched.text or watched.process.poll() is not None)
    assert watched.process.poll() is None, watched.text
