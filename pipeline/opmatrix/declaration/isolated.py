"""Read the operators of a project in a child process, so that their files cannot end, block or change this one.

A child reads one operator after the other and sends each through a pipe. When it dies, exceeds a limit, or stops
answering, the operator that it was at has failed, and another child goes on with the rest. What a file prints is lost,
and what it starts ends with the child.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import itertools
import marshal
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NoReturn

from opmatrix import spec
from opmatrix.basics.errors import SpecError
from opmatrix.basics.processes import fork_supervised, memory, signal_name
from opmatrix.basics.step_log import MOST_BYTES
from opmatrix.declaration.load import Declared, Operator, declared, operator_names, read, unknown_operator
from opmatrix.project import work_folder
from opmatrix.project.paths import Paths

SECONDS = 120  # for one operator; an import of torch takes 2 s, and far longer on a busy machine
MEGABYTES = 2000  # for the child and its processes, in addition to the memory of this process
_POLL = 0.05  # seconds between two checks of the child while it sends nothing
_READ = "while it was read. It only has to define values"
_LENGTH = 8  # bytes of the length before each message

Result = tuple[str, Operator | None, list[str]]  # the folder, and the operator or its mistakes
# Inode, size and time of spec.py and of cases.py, None for a missing one.
Marks = tuple[tuple[int, int, int] | None, ...]

# The operators at which a child died, by their folders, as their files were then. Each may take all of `SECONDS`, so
# this process does not read it again before its files change, nor do steps of doit, which are forks of this process.
_deaths: dict[Path, tuple[Marks, Result]] = {}

_numbers = itertools.count()  # of the children of this process


def read_operators(paths: Paths, *, seconds: float = SECONDS, megabytes: float = MEGABYTES) -> Declared:
    """Return the operators, for planning, and the mistakes of those that cannot be used.

    A function in a declaration, such as `Model.around`, has lost the names that it uses, so it must not be called.
    """
    return start_reading(paths, seconds=seconds, megabytes=megabytes)()


def start_reading(paths: Paths, *, seconds: float = SECONDS, megabytes: float = MEGABYTES) -> Callable[[], Declared]:
    """Start what `read_operators` does, and return the function that waits for its result."""
    names = operator_names(paths)
    deaths = {name: _deaths[paths.op(name)] for name in names if paths.op(name) in _deaths}
    known = {name: death for name, (marks, death) in deaths.items() if marks == _marks(paths, name)}
    asked = [name for name in names if name not in known]

    def start(left: Sequence[str]) -> _Child:
        return _Child(paths, left, seconds=seconds, megabytes=megabytes)

    first = start(asked) if asked else None

    def result() -> Declared:
        found = [*_until_death(first, paths, asked, seconds)] if first else []
        while len(found) < len(asked):
            left = asked[len(found) :]
            found += _until_death(start(left), paths, left, seconds)
        by_name = known | {one[0]: one for one in found}
        return declared(by_name[name] for name in names)

    return result


def _marks(paths: Paths, name: str) -> Marks:
    def mark(path: Path) -> tuple[int, int, int] | None:
        try:
            found = path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    return mark(paths.spec(name)), mark(paths.cases(name))


def usable(paths: Paths, names: Sequence[str]) -> list[Operator]:
    """Return these operators, or all without a name. Raises SpecError with the mistakes of those that cannot be used,
    or UsageError for an unknown one."""
    found = read_operators(paths)
    known = {operator.name: operator for operator in found.operators}
    if failed := [name for name in names or found.failed if name in found.failed]:
        raise SpecError("\n".join(line for name in failed for line in found.failed[name]))
    for name in names:
        if name not in known:
            raise unknown_operator(name, [*known, *found.failed])
    return [known[name] for name in dict.fromkeys(names or known)]


def _until_death(child: _Child, paths: Paths, names: Sequence[str], seconds: float) -> Iterator[Result]:
    """Yield the operators in order; if the child ends too early, the last is the one at which it ended."""
    try:
        for name in names:
            at, deadline, marks = f"ops/{name}", time.monotonic() + seconds, _marks(paths, name)
            while isinstance(message := child.receive(deadline), str):
                at = message
            if isinstance(message, _Death):
                death = name, None, [f"{at}: {message.how} {_READ}"]
                _deaths[paths.op(name)] = marks, death
                yield death
                return
            yield name, *message
    finally:
        child.end()


@dataclasses.dataclass(frozen=True)
class _Death:
    how: str


_FOREIGN = _Death("wrote into the pipe of opmatrix")  # what no child of ours sends


class _Child:
    """The child process, and the end of the pipe at which its messages arrive."""

    def __init__(self, paths: Paths, names: Sequence[str], *, seconds: float, megabytes: float) -> None:
        self._seconds, self._megabytes = seconds, megabytes
        self._memory = 2 * memory(os.getpid()) + megabytes * 1e6  # its supervisor has as much as this process
        self._work = paths.work(f"{os.getpid()}-{next(_numbers)}")
        work_folder.make(self._work, paths.root)
        self._pipe, writing = os.pipe()
        self._process: int | None = fork_supervised()
        if self._process == 0:
            _serve(paths, names, writing, self._work)
        os.close(writing)
        self._buffer = bytearray()
        self._poll = select.poll()
        self._poll.register(self._pipe)

    def receive(self, deadline: float) -> Any:
        """Return the next message: the file that the child reads, the result of an operator, or a _Death."""
        while (message := self._message()) is None:
            if self._poll.poll(_POLL * 1000):
                if data := os.read(self._pipe, 1 << 20):
                    self._buffer += data
                    if time.monotonic() < deadline:
                        continue
                else:
                    self._poll.unregister(self._pipe)  # it has ended, or closed its end; then it runs into the deadline
            if how := self._death(deadline):
                return _Death(how)
        return message

    def _message(self) -> Any:
        length = int.from_bytes(self._buffer[:_LENGTH], "big")
        if length > self._megabytes * 1e6:
            return _FOREIGN
        if len(self._buffer) < _LENGTH + length or not self._buffer:
            return None
        content = bytes(self._buffer[_LENGTH : _LENGTH + length])
        del self._buffer[: _LENGTH + length]
        try:
            match _Unpickler(io.BytesIO(content)).load():
                case (str() as message) | ((Operator() | None, list()) as message):
                    return message
        except Exception:  # code that writes to every descriptor
            pass
        return _FOREIGN

    def _death(self, deadline: float) -> str:
        assert self._process
        if time.monotonic() > deadline:
            return f"did not end within {self._seconds:g} s"
        if memory(self._process) > self._memory:
            return f"took more than {self._megabytes:g} MB of memory"
        process, status = os.waitpid(self._process, os.WNOHANG)
        if not process:
            return ""
        self._process = None
        code = os.waitstatus_to_exitcode(status)
        return f"died of {signal_name(-code)}" if code < 0 else f"ended the process with status {code}"

    def end(self) -> None:
        """Kill the child with what it started."""
        os.close(self._pipe)
        if self._process:
            with suppress(ProcessLookupError):
                os.kill(self._process, signal.SIGTERM)
            with suppress(ChildProcessError):
                os.waitpid(self._process, 0)
        work_folder.remove(self._work)


def _serve(paths: Paths, names: Sequence[str], pipe: int, work: Path) -> NoReturn:
    """Read the operators in this process, which was forked for it, and exit."""
    status, process = 1, os.getpid()

    def send(message: bytes) -> None:
        if os.getpid() != process:  # a file has forked, and returned in both
            os._exit(1)
        left = memoryview(len(message).to_bytes(_LENGTH, "big") + message)
        while left:
            left = left[os.write(pipe, left) :]

    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        printed = os.memfd_create("printed")
        fcntl.fcntl(printed, fcntl.F_SETFL, os.O_APPEND)
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
        for source, standard in ((os.open(os.devnull, os.O_RDONLY), 0), (printed, 1), (printed, 2)):
            os.dup2(source, standard)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))  # such as the lock of the build folder
        sys.stdin = os.fdopen(0, encoding="utf-8")  # pytest and doit have others
        sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8")
        os.chdir(work)
        for name in names:
            send(_result(*_read(paths, name, at=lambda file: send(pickle.dumps(file)))))
        status = 0
    finally:
        os._exit(status)


def _read(paths: Paths, name: str, at: Callable[[str], object]) -> tuple[Operator | None, list[str]]:
    """Return what `read` does, or that a file printed too much: it would in each step, which then has no room."""
    begun, wrong = list[str](), list[str]()

    def look() -> None:
        with suppress(OSError, ValueError):  # it printed too much, or closed it
            sys.stdout.flush()
        with suppress(OSError):
            if os.fstat(1).st_size >= MOST_BYTES:
                wrong.append(f"{begun[-1]}: printed more than {MOST_BYTES / 1e6:g} MB {_READ}")
            os.ftruncate(1, 0)

    def begin(file: str) -> None:
        look()
        begun.append(file)
        at(file)

    operator, mistakes = read(paths, name, at=begin)
    look()
    return (None, wrong) if wrong else (operator, mistakes)


def _result(operator: Operator | None, mistakes: list[str]) -> bytes:
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5).dump((operator, mistakes))
        return file.getvalue()
    except Exception as error:
        assert operator
        return pickle.dumps((None, [f"ops/{operator.name}: its declaration cannot be handed on: {error}"]))


_CLASSES: set[type] = {
    Operator,
    *(c for c in vars(spec).values() if isinstance(c, type) and dataclasses.is_dataclass(c)),
}
# What a value of a derived class becomes, such as numpy.float64, an enum or a named tuple.
_PLAIN: Sequence[tuple[type, type, Callable[[Any], object]]] = (
    (str, str, str.__str__),
    (int, int, int.__int__),
    (float, float, float.__float__),
    (tuple, tuple, tuple),
    (list, list, list),
    (Mapping, dict, dict),
)
_PICKLED_BY_NAME: set[type] = {*_CLASSES, *(plain for _, plain, _ in _PLAIN)}


class _Pickler(pickle.Pickler):
    """Pickles a declaration as plain values, so that loading them runs no code and needs no module of the project."""

    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind in _CLASSES or value is _function or (isinstance(value, type) and value in _PICKLED_BY_NAME):
            return NotImplemented
        if kind is FunctionType:
            return _function, (marshal.dumps(value.__code__),)
        for base, plain, convert in _PLAIN:
            if isinstance(value, base):
                return plain, (convert(value),)
        allowed = "numbers, texts, tuples, dicts and classes of opmatrix.spec"
        raise TypeError(f"found a {kind.__qualname__}, allowed: {allowed}")


class _Unpickler(pickle.Unpickler):
    """Loads what `_Pickler` makes, and no other class or function: the child could send anything."""

    def find_class(self, module: str, name: str) -> Any:
        if member := _BY_NAME.get((module, name)):
            return member
        raise pickle.UnpicklingError(f"found {module}.{name}")


def _function(code: bytes) -> FunctionType:
    found: CodeType = marshal.loads(code)
    return FunctionType(found, {})


_BY_NAME: Mapping[tuple[str, str], object] = {
    (_function.__module__, _function.__name__): _function,
    **{(known.__module__, known.__name__): known for known in _PICKLED_BY_NAME},
}
