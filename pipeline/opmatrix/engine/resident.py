"""The resident process of `doit watch`: it waits for saved files and runs a turn, one run of doit, for each.

A turn is a fork of this process, so that nothing that it imports, registers or caches is left for the next one. What
takes seconds to make anew, the servers, belongs to this process. It has a single thread, and waits in one place.
"""

from __future__ import annotations

import ast
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from opmatrix.basics.errors import OpmatrixError, UsageError
from opmatrix.basics.files import mark
from opmatrix.basics.interrupts import code_of, ending_signals, exit_code
from opmatrix.basics.processes import die_with_parent
from opmatrix.engine.saved_files import GONE, Marks, Watcher, changed, marks_of, of_program, of_project, unsettled
from opmatrix.engine.server_pool import KeptServers, Resident
from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES

_LOOK = 1.0  # seconds between two looks at what is installed
_PATIENCE = 60.0  # seconds that a turn has to end, also on a busy machine; a second signal ends it at once
_DEATHS = 3  # of the process that watches, one after the other


class Loop:
    """Runs `turn` at first and after each save, each time in a fork. `entry` is that of Pool. `say` prints which files
    were saved, `note` any other line."""

    def __init__(
        self,
        paths: Paths,
        *,
        entry: str,
        turn: Callable[[Resident], int],
        say: Callable[[Sequence[Path]], None],
        note: Callable[[str], None],
    ) -> None:
        self._paths, self._turn, self._say, self._note = paths, turn, say, note
        self._servers = KeptServers(paths, entry=entry)
        self._ahead: Sequence[str] = ()  # the servers that the steps of the last turn may need
        self._reads: Sequence[str] = ()  # folders and files outside ops/ and native/ that the steps read
        self._first = True  # whether the command line may be wrong: no turn ended, and nothing was saved
        self._process: int | None = None  # the turn that runs
        self._requests: socket.socket | None = None  # its messages
        self._signals: list[int] = []  # those that ask this process to end
        self._woken = -1
        self._imported = marks_of(of_program(paths))
        self._installed = installed_packages(paths.root)
        self._waits = ""  # why this process, which is out of date, is not replaced yet
        self._seen: Marks = {}
        self._deaths = 0
        self._said_polls = False
        self._watcher: Watcher  # from `run` on
        self.interrupted = False  # whether a turn was running when this process was asked to end

    def run(self) -> int:
        """Run until a signal asks to end, and return the exit code; that of the first turn if it finds the command line
        wrong."""
        # Signals wake `_wait`, so that none interrupts this process elsewhere.
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, *ending_signals()):
            signal.signal(number, lambda number, _: self._signals.append(number))
        self._watch()
        try:
            return self._wait()
        except FileNotFoundError:
            self._require_root()
            raise
        finally:
            code = self._stop_turn()
            self.interrupted = code in (exit_code(signal.SIGINT), -signal.SIGKILL)
            self._watcher.close()
            self._servers.close()
            signal.set_wakeup_fd(-1)

    def _wait(self) -> int:
        looks_again = False
        self._begin()
        while not self._signals:
            listed: list[Any] = [self._woken, self._watcher, *([self._requests] if self._requests else [])]
            ready = select.select(listed, [], [], _LOOK)[0]
            if self._woken in ready:
                os.read(self._woken, 4096)
            if self._requests in ready:
                self._answer()
            if (code := self._ended()) is not None:
                if self._first and code == UsageError.exit_code:
                    return code
                self._first = False
                self._servers.start(self._ahead)  # one may have crashed
            if self._watcher in ready:
                try:
                    self._watcher.wait_until_quiet()
                    self._deaths = 0
                except ChildProcessError:
                    self._deaths += 1
                    if self._deaths == _DEATHS:
                        raise OpmatrixError(
                            "doit watch: the process that watches the files ended three times. Start it again; "
                            "WATCHFILES_FORCE_POLLING=1 does without inotify"
                        ) from None
                    self._watch_anew()
                self._look()
                looks_again = True
            elif not ready and looks_again:  # inotify says nothing of a file that is written before its new folder is
                self._look()  # watched, nor of one that is written through memory (mmap)
                looks_again = False
            elif not ready and installed_packages(self._paths.root) != self._installed:
                self._stale()
        return exit_code(self._signals[0])

    # What was saved.

    def _watch(self) -> None:
        self._watcher = Watcher(self._existing(), root=self._paths.root, polls=self._polls)

    def _watch_anew(self) -> None:
        self._watcher.close()
        self._watch()

    def _existing(self) -> list[str]:
        every = dict.fromkeys((*of_project(self._paths, self._reads), *of_program(self._paths)))
        return [path for path in every if Path(path).is_dir()]

    def _polls(self) -> None:
        if not self._said_polls:
            self._note("no inotify watch is left, so opmatrix looks at the files every 0.3 s. "
                       "For more: sudo sysctl fs.inotify.max_user_watches=524288")  # fmt: skip
        self._said_polls = True

    def _look(self) -> None:
        """Begin a turn if a file was saved, or the whole process anew if what it is made of was."""
        self._require_root()
        if self._stale():
            return
        deadline = time.monotonic() + GONE  # a file that is gone, or empty, gets a moment to come back
        sources = of_project(self._paths, self._reads)
        while unsettled(self._seen, now := marks_of(sources)) and time.monotonic() < deadline:
            time.sleep(0.01)
        if saved := changed(self._seen, now):
            self._stop_turn()
            self._first = False
            self._seen = now
            self._say([Path(path) for path in saved])
            self._begin()
        if self._watcher.folders != self._existing():
            self._watch_anew()

    def _require_root(self) -> None:
        if not self._paths.root.is_dir():
            raise OpmatrixError(f"doit watch: the project's folder {str(self._paths.root)!r} is gone")

    # What this process and its servers are made of.

    def _stale(self) -> bool:
        """Return whether what is imported here is out of date and cannot be replaced yet. Replace it if it can."""
        found = installed_packages(self._paths.root)
        edited = changed(self._imported, marks_of(of_program(self._paths)))
        if found == self._installed and not edited:
            return False
        why = next(filter(None, map(_syntax_error, edited)), "")
        if not why and found != self._installed and not _is_complete(found, self._paths.root):
            why = "the environment is being changed"
        if not (self._paths.root / "dodo.py").exists():  # without which doit does not start
            why = "dodo.py is being replaced"
        if why:
            if why != self._waits:
                self._note(f"{why}; opmatrix waits until that is done")
            self._waits = why
        else:
            self._start_anew(os.path.relpath(edited[0]) if edited else "the environment")
        return True

    def _start_anew(self, what: str) -> NoReturn:
        self._note(f"{what} has changed: opmatrix starts anew")
        self._stop_turn()
        self._watcher.close()
        self._servers.close()
        sys.stdout.flush()
        signal.set_wakeup_fd(-1)
        os.execv(sys.executable, [sys.executable, "-m", "doit", *sys.argv[1:]])

    # The turn.

    def _begin(self) -> None:
        self._seen = self._seen or marks_of(of_project(self._paths, self._reads))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        process = os.fork()
        if process == 0:
            ours.close()
            self._run_turn(Resident(theirs), parent)
        theirs.close()
        self._process, self._requests = process, ours

    def _run_turn(self, resident: Resident, parent: int) -> NoReturn:
        """Run the turn in this process, which was forked for it, and exit."""
        code = 1
        try:
            die_with_parent(signal.SIGTERM)
            os.setpgid(0, 0)  # Ctrl-C goes to the parent alone, which ends the turn
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # it may print, though another group has the terminal
            for number in (*ending_signals(), signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            if os.getppid() != parent:  # it ended before this process could be told
                os._exit(code)
                self._watcher.leave()
            self._servers.leave()
            code = self._turn(resident)
        except KeyboardInterrupt as error:
            code = code_of(error)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with suppress(OSError, ValueError):  # the terminal was closed
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _answer(self) -> None:
        assert self._requests
        try:
            wishes = self._servers.answer(self._requests)
        except (OSError, ValueError):  # it has ended
            self._close_requests()
            return
        if wishes:
            self._ahead, reads = wishes
            self._servers.start(self._ahead)
            if new := set(reads).difference(self._reads):
                self._reads = reads
                self._seen = {**self._seen, **marks_of(new)}
                self._watch_anew()

    def _ended(self) -> int | None:
        """Return the exit code of the turn if it has ended since the last call."""
        if self._process is None:
            return None
        process, status = os.waitpid(self._process, os.WNOHANG)
        if not process:
            return None
        self._process = None
        self._close_requests()
        return os.waitstatus_to_exitcode(status)

    def _stop_turn(self) -> int | None:
        """End the turn that runs, as Ctrl-C does: what has finished is kept. Return its exit code."""
        if self._process is None:
            return None
        deadline, killed = time.monotonic() + _PATIENCE, False
        os.kill(self._process, signal.SIGINT)
        while (code := self._ended()) is None:
            if not killed and (time.monotonic() > deadline or len(self._signals) > 1):
                os.kill(self._process, signal.SIGKILL)
                killed = True
            time.sleep(0.002)
        return code

    def _close_requests(self) -> None:
        if self._requests:
            self._requests.close()
            self._requests = None


def installed_packages(root: Path) -> Mapping[str, object]:
    """Return the state of what is installed: the folders of metadata where Python finds packages, and the environment
    itself."""
    marks: dict[str, object] = {"": mark(f"{sys.prefix}/pyvenv.cfg")}
    for folder in map(Path, dict.fromkeys(sys.path)):
        if folder.is_absolute() and folder != root:
            with suppress(OSError), os.scandir(folder) as entries:
                marks |= {e.path: mark(e.path) for e in entries if e.name.endswith((".dist-info", ".egg-info"))}
    return marks


def _is_complete(packages: Mapping[str, object], root: Path) -> bool:
    """Return whether the environment has what opmatrix needs to start anew, and is still as `packages` in a second."""
    with suppress(metadata.PackageNotFoundError):
        needed = map(metadata.version, ("doit", "opmatrix", "watchfiles", *PACKAGES))
        if all(needed) and Path(sys.executable).exists():
            time.sleep(1.0)
            return installed_packages(root) == packages
    return False


def _syntax_error(path: str) -> str:
    """Return ``spec.py:3: invalid syntax`` for a Python file with a mistake, such as one that is half written."""
    try:
        ast.parse(Path(path).read_bytes() if path.endswith(".py") else b"")
    except OSError:  # it is gone
        return ""
    except (SyntaxError, ValueError) as error:
        line = f":{error.lineno}" if isinstance(error, SyntaxError) else ""
        return f"{os.path.relpath(path)}{line}: {getattr(error, 'msg', error)}"
    return ""
