"""Which files of a project were saved: what a burst of events of the file system has changed.

The events only say when to look. What counts is the difference between two looks, so that a temporary file of an
editor, or a file that is gone for a moment, is no change.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from opmatrix.basics.files import Mark, files_below, mark
from opmatrix.basics.processes import begin_child
from opmatrix.project.paths import PACKAGE, Paths

Marks = Mapping[str, Mark]

QUIET = 0.03  # seconds without an event, after which a burst has ended
GONE = 0.15  # seconds in which a file that is gone may come back: some editors delete a file and write it anew
_LONGEST = 2.0  # seconds of a burst, after which it counts as ended
_STEP = 20  # milliseconds for which watchfiles collects events
_POLL = 300  # milliseconds between two looks where the file system sends no events
_POLLING = b"p"  # what the process that watches writes when it has to poll
_EVENT = b"."


def marks_of(paths: Iterable[str]) -> dict[str, Mark]:
    """Return the mark of every file in `paths`, which are folders and single files."""
    marks = {}
    for path in paths:
        for file in files_below(path, ignored=is_ignored) if Path(path).is_dir() else (path,):
            with suppress(OSError):
                if of_file := mark(file):
                    marks[file] = of_file
    return marks


def of_project(paths: Paths, more: Iterable[str] = ()) -> list[str]:
    """Return the folders and files that a project's steps read, with `more` of them."""
    of_pins = (str(folder) for folder in paths.requirements)
    known = dict.fromkeys((str(paths.ops), str(paths.native), str(paths.include), str(paths.binding), *of_pins))
    others = (path for path in more if not any(f"{path}/".startswith(f"{k}/") for k in known))
    return [*known, str(paths.root / "pyproject.toml"), *others]


def of_program(paths: Paths) -> list[str]:
    """Return the folder and the file from which this process and its servers have imported what is edited."""
    return [str(PACKAGE), str(paths.root / "dodo.py")]


def changed(before: Marks, after: Marks) -> list[str]:
    """Return the files that were written, made or removed, sorted."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def unsettled(before: Marks, now: Marks) -> bool:
    """Return whether a file is gone or empty that was not: an editor may be about to write it."""
    return any(mark[2] and not now.get(path, (0, 0, 0, 0))[2] for path, mark in before.items())


def is_ignored(name: str) -> bool:
    """Return whether a file cannot matter by its name: a hidden one, or one that an editor keeps for a while."""
    of_editor = name.startswith("#") or name.endswith(("~", ".swp", ".swx", ".tmp", ".orig")) or name == "4913"
    return of_editor or name.startswith(".") or name == "__pycache__"


class Watcher:
    """A child process that reports bursts of events in `folders`, and in `root` without its folders.

    A process of its own: watchfiles starts threads, and a process that forks must not have any. `polls` is called where
    the user has no inotify watches left, so that the process looks at the files from time to time.
    """

    def __init__(self, folders: Sequence[str], *, root: Path, polls: Callable[[], None]) -> None:
        self.folders, self._polls = folders, polls
        self._reading, writing = os.pipe()
        parent = os.getpid()
        self._process = os.fork()
        if self._process == 0:
            _watch(folders, str(root), writing, parent)
        os.close(writing)

    def fileno(self) -> int:
        return self._reading

    def wait_until_quiet(self) -> None:
        """Read events until there is none for a moment. Raises ChildProcessError when the process has ended."""
        deadline = time.monotonic() + _LONGEST
        while select.select([self._reading], [], [], QUIET)[0] and time.monotonic() < deadline:
            events = os.read(self._reading, 4096)
            if not events:
                raise ChildProcessError
            if _POLLING in events:
                self._polls()

    def close(self) -> None:
        self.leave()
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._process, 0)

    def leave(self) -> None:
        """Close the pipe, as a fork of the process that has the watcher does."""
        os.close(self._reading)


def _watch(folders: Sequence[str], root: str, pipe: int, parent: int) -> NoReturn:
    try:
        begin_child(parent)
        threading.Thread(target=_report, args=([root], pipe, False), daemon=True).start()
        _report([*folders], pipe, True)
    finally:
        os._exit(1)


def _report(folders: list[str], pipe: int, recursive: bool) -> None:
    """Write to the pipe as soon as events would be seen, and for each burst of events. Does not return."""
    from watchfiles import watch  # the optional dependency, which only this process imports

    polling: bool | None = None  # as the environment variable WATCHFILES_FORCE_POLLING says
    unreadable = False  # whether to ignore folders that may not be read; watchfiles 1.3 then ignores a full inotify too
    try:
        while True:
            ready = False
            try:
                for events in watch(
                    *folders,
                    watch_filter=None,
                    step=_STEP,
                    debounce=1000,
                    rust_timeout=1000,
                    yield_on_timeout=True,
                    force_polling=polling,
                    poll_delay_ms=_POLL,
                    recursive=recursive,
                    ignore_permission_denied=unreadable or bool(polling),
                ):
                    if events or not ready:
                        os.write(pipe, _EVENT)
                    ready = True
            except FileNotFoundError:  # a folder has gone: the parent starts another process
                return
            except PermissionError:
                if unreadable:
                    raise
                unreadable = True
            except (OSError, RuntimeError):  # neither a watch nor an instance of inotify is left
                if polling:
                    raise
                polling = True
                os.write(pipe, _POLLING)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(1)
