"""What no hook of Python sees of a reference that runs what it should judge: Linux lists it in /proc.

Each runs in a process of its own, as a step does: other tests leave processes and pipes in this one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.data import reference_audit
from tests.support import double
from tests.support.projects import ROOT, write_files

BODY = "def double(x, *, factor):\n    import builtins\n    {}\n    return x * factor\n"
# `before` and `after` are of another program. `builtins.kept` lives as long as this process.
PROGRAM = """
import builtins, pathlib, sys
from opmatrix.basics.errors import DataError
from opmatrix.project.paths import Paths
from opmatrix.data import write_data
from tests.support import double
root = pathlib.Path(sys.argv[1])
builtins.kept = []
{before}
try:
    write_data.run(Paths(root), double.OPERATOR)
except DataError as error:
    print(error)
{after}
"""
# What the reference does, the lines before and after it, and what the message says.
# At 71b51ad8: each was accepted.
UNSEEN = {
    "a process": (
        "import multiprocessing.util as u\n"
        "    builtins.kept or builtins.kept.append(u.spawnv_passfds(b'/bin/sleep', [b'sleep', b'600'], []))",
        "",
        "import os; os.kill(builtins.kept[0], 9)",
        "has a child process, which may run the kernel",
    ),
    "a server of multiprocessing": (
        "import multiprocessing.resource_tracker as r; r.ensure_running()",
        "",
        "",
        "has a child process, which may run the kernel",
    ),
    "a process that runs": (
        "builtins.kept[0].write(b'2'); builtins.kept[0].flush()",
        "import subprocess; from opmatrix.data import reference_audit; reference_audit.start()\n"
        "program = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        "builtins.kept.append(program.stdin)",
        "program.kill(); program.wait()",
        "has a child process, which may run the kernel",
    ),
    "shared memory": (
        "import os; from multiprocessing import shared_memory as s\n"
        "    builtins.kept.append(s.SharedMemory(f'opmatrix{os.getppid()}'))",
        "import os\nos.ftruncate(os.open(f'/dev/shm/opmatrix{os.getppid()}', os.O_RDWR | os.O_CREAT), 64)",
        "os.unlink(f'/dev/shm/opmatrix{os.getppid()}')",
        "shares memory with other processes (/dev/shm/opmatrix{parent}), which may run the kernel",
    ),
    "a pipe": (
        "import os; os.pipe()",
        "",
        "",
        "has a pipe to another process, which may run the kernel",
    ),
    # A map of a file as dlopen() makes it.
    "a library": (
        "import mmap; builtins.kept.append(mmap.mmap(builtins.kept[0], 0, mmap.MAP_PRIVATE, 5))",
        "(root / 'mine.so').write_bytes(b'0' * 4096); builtins.kept.append((root / 'mine.so').open().fileno())\n"
        "import os; builtins.kept[0] = os.open(root / 'mine.so', os.O_RDONLY)",
        "",
        "has loaded {root}/mine.so, allowed: libraries of the system and of installed packages",
    ),
}


def printed(root: Path, statement: str, before: str = "", after: str = "") -> str:
    """Return what a program prints that runs the stage `data` with a reference, and lines before and after it."""
    double.project(root, reference=BODY.format(statement))
    program = PROGRAM.format(before=before, after=after)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("way", UNSEEN)
def test_it_is_found_when_the_reference_has_run(way: str, tmp_path: Path) -> None:
    statement, before, after, expected = UNSEEN[way]
    found = printed(tmp_path, statement, before, after)
    trace = expected.format(root=tmp_path, parent=os.getpid())
    assert f"ops/double/reference.py: after it ran, the process {trace}. Write the reference in NumPy, " in found


def test_a_copy_is_found_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another name, and of a library that the build made while the reference ran."""
    monkeypatch.setattr(reference_audit, "_python_folders", lambda: (tmp_path / "packages",))
    traces = {name: reference_audit.Traces.now() for name in ("before", "after")}
    build, copy = tmp_path / "build/ort", tmp_path / "packages/copy.so.1"
    for path in (build / "other.so", build / "libdouble.so", copy):
        path.parent.mkdir(parents=True, exist_ok=True)
    (build / "other.so").write_bytes(b"other")
    (build / "nowhere.so").symlink_to(tmp_path / "nowhere")
    copy.write_bytes(b"same")
    assert reference_audit.copied_from(copy, tmp_path) == ""
    (build / "libdouble.so").write_bytes(b"same")
    after = replace(traces["after"], mapped=traces["before"].mapped | {str(copy)})
    (found,) = after.since(traces["before"], tmp_path, waited=False)
    assert f"has loaded {copy}, a copy of build/ort/libdouble.so, which this build made" in found


def test_a_copy_is_found_although_another_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, made, copy = tmp_path / "build/gone.so", tmp_path / "build/libdouble.so", tmp_path / "packages/copy.so"
    monkeypatch.setattr(reference_audit, "_built", lambda _: {4: [gone, made]})
    write_files(tmp_path, {"build/libdouble.so": "same", "packages/copy.so": "same"})
    assert reference_audit.copied_from(copy, tmp_path) == "build/libdouble.so"


def test_what_was_there_before_is_not_the_reference_s(tmp_path: Path) -> None:
    before = (
        "import os, subprocess; builtins.kept.append(os.pipe())\n"
        "program = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "program.kill()"
    )
    assert not printed(tmp_path, "builtins.kept", before, "program.wait()")


def test_a_child_of_others_that_ends_meanwhile(tmp_path: Path) -> None:
    """As where garbage of an earlier user of this process is collected while the reference runs."""
    before = "import subprocess; builtins.kept.append(subprocess.Popen(['true']))"
    assert not printed(tmp_path, "builtins.kept[0].wait()", before)
