"""Refuse what a reference must not use: the code under test, what the build made of it, and who could run it.

An audit hook of Python sees every import, every library that ctypes opens, every file, process and connection, however
it is spelled. A hook stays for the life of the process. While a reference is loaded or called, all that happens is its
own, in whatever thread; later, what its threads do, and what code of its file does. What no hook sees, because a
library's own code loads another one, starts a process or connects to one, Linux lists in /proc (`Traces`).
"""

from __future__ import annotations

import functools
import os
import resource
import shlex
import sys
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from opmatrix.basics.files import digest_of, sha256
from opmatrix.basics.processes import children
from opmatrix.project.paths import Paths
from opmatrix.project.work_folder import WORK

# Where a package manager or an administrator installs libraries.
_SYSTEM = tuple(map(Path, ("/usr", "/lib", "/lib64", "/nix/store", "/gnu/store")))
_SHARED_MEMORY = "/dev/shm/"

_at_start: dict[str, frozenset[str]] = {}


def start() -> None:
    """Remember what is mapped now, before any code of a project runs in this process or in a fork of it."""
    _at_start["mapped"] = frozenset(_mapped())


@dataclass(frozen=True, kw_only=True)
class Traces:
    """What a process has at one moment. `ended`: page faults of the children that it has waited for, which grow with
    each of them."""

    mapped: frozenset[str]
    children: frozenset[int]
    ended: int
    connections: frozenset[str]

    @classmethod
    def before(cls) -> Traces:
        """Return what a process has before a reference runs: after `start`, no library and no child of the project."""
        return cls._now(_at_start["mapped"], frozenset()) if _at_start else cls.now()

    @classmethod
    def now(cls) -> Traces:
        return cls._now(frozenset(_mapped()), frozenset(children(os.getpid())))

    @classmethod
    def _now(cls, mapped: frozenset[str], its_children: frozenset[int]) -> Traces:
        return cls(
            mapped=mapped,
            children=its_children,
            ended=resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt,
            connections=frozenset(_connections()),
        )

    def since(self, before: Traces, root: Path, *, waited: bool) -> Iterator[str]:
        """Yield what came since `before` that a reference in the project `root` must not leave. `waited`: it may have
        waited for a process."""
        _built.cache_clear()  # another step may have made a library since
        for path in sorted(self.mapped - before.mapped):
            if path.startswith(_SHARED_MEMORY):
                yield f"shares memory with other processes ({path}), which may run the kernel"
            elif not is_installed(Path(path), root):
                yield f"has loaded {path}, allowed: libraries of the system and of installed packages"
            elif made := copied_from(Path(path), root):
                yield f"has loaded {path}, a copy of {made}, which this build made, so it agrees with any fault"
        if self.children - before.children:
            yield "has a child process, which may run the kernel"
        elif not waited and self.ended > before.ended and self.children >= before.children:  # none of before ended
            yield "has waited for a child process, which may have run the kernel"
        for kind in sorted({name.partition(":")[0] for name in self.connections - before.connections}):
            yield f"has a {kind} to another process, which may run the kernel"


def is_installed(path: Path, root: Path) -> bool:
    """Return whether a library belongs to the system, to Python or to an installed package, and not to a project."""
    inside = [folder for folder in (*_SYSTEM, *_python_folders()) if path.is_relative_to(folder)]
    return any(folder.is_relative_to(root) or not path.is_relative_to(root) for folder in inside)


def copied_from(path: Path, root: Path) -> str:
    """Return the library in the project's build/ of which an installed one is a copy, as from a wheel; or ""."""
    if path.is_relative_to(Path(sys.base_prefix)) or any(map(path.is_relative_to, _SYSTEM)):
        return ""
    with suppress(OSError):  # the file is gone
        for made in _built(root / "build").get(path.stat().st_size, ()):
            if digest_of(str(made)) == sha256(path):  # None: it is gone since, or cannot be read
                return str(made.relative_to(root))
    return ""


@functools.cache
def _built(build: Path) -> Mapping[int, Sequence[Path]]:
    """Return the files in build/ by their size; `Traces.since` looks anew."""
    by_size: dict[int, list[Path]] = defaultdict(list)
    for folder, _, names in os.walk(build):
        for name in names:
            with suppress(OSError):  # it is gone, or a link to nothing
                by_size[os.stat(f"{folder}/{name}").st_size].append(Path(folder, name))  # noqa: PTH116 - thousands
    return by_size


@functools.cache
def _python_folders() -> tuple[Path, ...]:
    """Return the folders of Python and of its packages, where `start` or the first audit finds them."""
    packages = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return tuple(Path(entry).resolve() for entry in (sys.prefix, sys.base_prefix, *packages))


def _mapped() -> Iterator[str]:
    """Yield the files whose code this process can run, and shared memory."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        if "xp " in line or "xs " in line or _SHARED_MEMORY in line:  # executable, or shared
            _, _, _, _, inode, *name = line.split(maxsplit=5)
            if name and inode != "0":
                yield name[0]


def _connections() -> Iterator[str]:
    """Yield ``pipe:[123]`` and ``socket:[124]``."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - each step calls this
        with suppress(OSError):  # the descriptor of the folder itself
            name = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115 - as above
            if name.startswith(("pipe:", "socket:")):
                yield name


# Modules that a reference must not import, and why.
REFUSED: Mapping[str, str] = {
    "torch": "it runs the kernel under test, and its own operators are compared with the reference",
    "onnxruntime": "it runs the models under test",
}
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty"})
_ASKS = frozenset({"socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg"})
_COPIES = frozenset({"os.link", "os.symlink", "os.rename"})
_EVENTS = frozenset({"import", "ctypes.dlopen", "ctypes.dlsym", "open"}) | _STARTS | _ASKS | _COPIES
# Functions of C that do the same as one of these events, of which no other event tells.
_IN_C = frozenset({
    "dlopen", "dlmopen", "dlsym", "open", "open64", "openat", "fopen", "fopen64", "mmap", "mmap64", "shm_open",
    "system", "popen", "fork", "vfork", "clone", "execv", "execve", "execvp", "posix_spawn", "posix_spawnp", "syscall",
    "socket", "connect",
})  # fmt: skip
# The one module of Python's own that starts processes to find a library of the system.
_FINDS_LIBRARIES = "ctypes/util.py"

_REMEDY = "Write the reference in NumPy, from the definition"
_OR_DECLARE = f'{_REMEDY}, or declare dependent_reference="why" in spec.py, which the report shows'


class NotIndependentError(Exception):
    """A reference uses what it should judge. Not part of opmatrix.basics.errors: user code may catch it."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What one reference.py did although it must not: a line each, also where its code caught the exception."""

    path: str  # as in its code objects
    shown: str
    root: Path
    under_test: Mapping[Path, str]  # the folders that it must not open, and why
    work: Path  # its working folder, which is in build/ and which it may use
    refused: Mapping[str, str]
    declared: bool  # that it is not independent
    before: Traces
    problems: list[str] = field(default_factory=list)
    allowed: list[str] = field(default_factory=list)  # processes that it started and may start
    earlier: weakref.WeakSet[threading.Thread]  # threads that there were before
    others: int  # how many
    threads: weakref.WeakSet[threading.Thread] = field(default_factory=weakref.WeakSet)  # that it started

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take all that happens for what the reference does; later, what the threads do that it started."""
        _running.append((self, threading.get_ident()))
        try:
            yield
        finally:
            _running.pop()
            if threading.active_count() != self.others:
                self.threads.update(set(threading.enumerate()).difference(self.earlier))

    def look(self, event: str, args: tuple[Any, ...], *, raises: bool) -> None:
        """Add an event that is refused to `problems`, and raise NotIndependentError. Not in a thread that the reference
        started: it would wait forever for what the thread should give it."""
        if why := self._problem(event, args):
            self.problems.append(f"{self._place()}: {why}")
            if raises:
                raise NotIndependentError(why)

    def finish(self) -> None:
        """Add to `problems` what no hook sees."""
        traces = () if self.declared else Traces.now().since(self.before, self.root, waited=bool(self.allowed))
        self.problems.extend(f"{self.shown}: after it ran, the process {trace}. {_OR_DECLARE}" for trace in traces)

    def _place(self) -> str:
        """Return the line of the reference that runs, or that of a module of the project that it uses."""
        frames = list(_frames())
        if frame := next((f for f in frames if f.f_code.co_filename == self.path), None):
            return f"{self.shown}:{frame.f_lineno}"
        for frame in frames:
            path = Path(frame.f_code.co_filename)
            ours = path.is_relative_to(Path(__file__).parents[1])
            if path.is_relative_to(self.root) and not is_installed(path, self.root) and not ours:
                return f"{self.shown}, in {path.relative_to(self.root)}:{frame.f_lineno}"
        return self.shown

    def _problem(self, event: str, args: tuple[Any, ...]) -> str:
        if event == "import" and (name := str(args[0]).partition(".")[0]) in self.refused:
            other = ', or with reference="torch" in spec.py' if name == "torch" else ""
            return f"imports {name}: {self.refused[name]}. {_REMEDY}{other}"
        if self.declared:
            return ""
        if event in _STARTS:
            why = f"{_started(event, args)}, which may run the kernel. {_OR_DECLARE}"
            if any(frame.f_code.co_filename.endswith(_FINDS_LIBRARIES) for frame in _frames()):
                self.allowed.append(why)
                return ""
            return why
        if event in _ASKS:
            return f"asks another process ({event}), which may run the kernel. {_OR_DECLARE}"
        if event == "ctypes.dlsym":
            name = str(args[1])
            return f"calls {name}() of C, of which Python sees no more. {_OR_DECLARE}" if name in _IN_C else ""
        if event == "import":  # of an extension module it has the file
            return self._of_path("loads", args[1], library=True) if args[1] else ""
        if event == "ctypes.dlopen":
            return self._of_path("loads", args[0], library=True)
        names = args[: 2 if event in _COPIES else 1]
        return next(filter(None, (self._of_path("opens", name, library=False) for name in names)), "")

    def _of_path(self, verb: str, name: Any, *, library: bool) -> str:
        if not isinstance(name, str | bytes | os.PathLike):  # a descriptor, or None for the program itself
            return ""
        given = os.fsdecode(name)
        path = Path(given).resolve()
        seen = [one for one in (path, (self.root / given).resolve()) if not one.is_relative_to(self.work)]
        for folder, why in self.under_test.items():
            if inside := next((one for one in seen if one.is_relative_to(folder)), None):
                return f"{verb} {inside.relative_to(folder.parent)}, {why}, so it agrees with any fault. {_OR_DECLARE}"
        why = ""
        if not library:
            with suppress(OSError, ValueError):  # the reference finds that out itself
                if path.is_fifo() or path.is_socket():
                    why = "a pipe to another process, which may run the kernel"
        elif "/" in given and not is_installed(path, self.root):
            why = "allowed: libraries of the system and of installed packages"
        elif "/" in given and (made := copied_from(path, self.root)):
            why = f"a copy of {made}, which this build made, so it agrees with any fault"
        return f"{verb} {given}, {why}. {_OR_DECLARE}" if why else ""


_audits: dict[str, Audit] = {}
_looking: set[int] = set()  # threads in which an audit looks
_running: list[tuple[Audit, int]] = []  # and the thread that calls the reference


def watch(paths: Paths, operator: str, *, torch: bool = False, declared: bool = False) -> Audit:
    """Refuse from now on what the reference of an operator must not use. `torch`: it may import torch. `declared`: the
    declaration says that it is not independent, so that only imports are refused."""
    _install()
    path = paths.reference(operator)
    audit = Audit(
        path=str(path),
        shown=str(path.relative_to(paths.root)),
        root=paths.root.resolve(),
        under_test={
            paths.build.resolve(): "which this build made",
            paths.native.resolve(): "which is the code under test",
        },
        work=Path(os.environ.get(WORK, os.devnull)).resolve(),
        refused={name: why for name, why in REFUSED.items() if not (torch and name == "torch")},
        declared=declared,
        before=Traces.before(),
        earlier=weakref.WeakSet(threading.enumerate()),
        others=threading.active_count(),
    )
    _audits[audit.path] = audit
    return audit


def refuse(audit: Audit, why: str) -> NoReturn:
    """Raise NotIndependentError for what the code of a reference does now; add it to `problems`, with its line."""
    frame = next((frame for frame in _frames() if frame.f_code.co_filename == audit.path), None)
    audit.problems.append(f"{audit.shown}{f':{frame.f_lineno}' if frame else ''}: {why}")
    raise NotIndependentError(why)


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _EVENTS or event not in _EVENTS or (thread := threading.get_ident()) in _looking:
        return  # also where Python ends and clears the variables of modules
    _looking.add(thread)  # what an audit itself opens
    try:
        _look(event, args, thread)
    finally:
        _looking.discard(thread)


def _look(event: str, args: tuple[Any, ...], thread: int) -> None:
    """Give an event to the audit of the reference that causes it, if one does."""
    if _running:
        running, caller = _running[-1]
        running.look(event, args, raises=thread == caller)
        return
    frame: FrameType | None = sys._getframe(2)
    while frame:  # not a generator: each file that a stage opens comes here
        if audit := _audits.get(frame.f_code.co_filename):
            audit.look(event, args, raises=True)
            return
        frame = frame.f_back
    if thread != threading.main_thread().ident:
        started = vars(threading)["_active"].get(thread)  # current_thread() would add an unknown one
        for one in _audits.values():
            if started in one.threads:
                one.look(event, args, raises=False)


def _frames() -> Iterator[FrameType]:
    """Yield the frames of this thread, the innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        yield frame
        frame = frame.f_back


def _started(event: str, args: tuple[Any, ...]) -> str:
    """Return ``starts a process (c++ -shared kernel.cc)``."""
    given = args[1] if event == "subprocess.Popen" and len(args) > 1 else args[0] if args else event
    words = given if isinstance(given, list | tuple) else [given]
    text = shlex.join(os.fsdecode(w) if isinstance(w, bytes | os.PathLike) else str(w) for w in words)
    return f"starts a process ({text if len(text) <= 80 else text[:77] + '...'})"
