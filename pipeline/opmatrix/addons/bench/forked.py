"""A process that is forked for one row, and the data that it sends. If it dies, its parent goes on. No framework."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

from opmatrix.basics.processes import die_with_parent, kill_group, signal_name

Answer = Callable[[Any], Any]


class DiedError(Exception):
    """A forked process has ended before it answered; the message says how."""


class StoppedError(DiedError):
    """A forked process was stopped, because it did not answer in time; the message says what it ran."""


REMEDY = "Fix it, or raise `seconds` in [tool.opmatrix.limits] of pyproject.toml"


class Forked:
    """A child of this process that answers messages, with what `start` returns in the child, each in `seconds`."""

    def __init__(self, start: Callable[[], Answer], *, seconds: float = 300) -> None:
        self._seconds = min(seconds, 1e6)  # poll(2) takes not much more
        self._connection, other = multiprocessing.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._process = os.fork()
        if self._process == 0:
            os.setpgid(0, 0)
            die_with_parent()
            _serve(other, self._connection, start)
        with suppress(OSError):  # the child does the same, in either order
            os.setpgid(self._process, self._process)
        other.close()

    def ask(self, message: Any, *, what: str = "the process") -> Any:
        """Return the answer to a message. Raises DiedError; `what`: what does not return if there is no answer."""
        try:
            self._connection.send(message)
            if self._connection.poll(self._seconds):
                return self._connection.recv()
        except (EOFError, OSError) as error:
            raise DiedError(self._ending()) from error
        self.close()
        raise StoppedError(f"{what} did not return within {self._seconds:g} s and was stopped")

    def _ending(self) -> str:
        if not self._process:
            return "has ended"
        _, status = os.waitpid(self._process, 0)
        self._process = 0
        code = os.waitstatus_to_exitcode(status)
        return f"died of {signal_name(-code)}" if code < 0 else f"ended with status {code}"

    def close(self) -> None:
        """End the child and what it has started, such as the process of a reference in torch."""
        self._connection.close()
        if self._process:
            kill_group(self._process)
            os.waitpid(self._process, 0)
            self._process = 0

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(connection: Connection, others: Connection, start: Callable[[], Answer]) -> None:
    """Answer messages in the child until the parent closes the connection."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process
        others.close()  # else this process would never see its end
        gc.disable()  # a collection in a batch would count
        answer = start()
        while True:
            try:
                message = connection.recv()
            except EOFError:
                break
            connection.send(answer(message))
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


Side = Literal["torch", "onnxruntime"]
Record = dict[str, Any]
"""JSON data, as bench.schema.json and against.schema.json describe it."""


@dataclass(frozen=True, kw_only=True)
class Errors:
    """The worst output: its name, its largest absolute error, and that error as a fraction of the declared tolerance
    (`opmatrix.data.compare`). `problem`: why there is no number."""

    output: str = ""
    absolute: float | None = None
    tolerance_used: float | None = None
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A contestant that waits for its turn, or why it does not take part. `calls`: how many a batch has. `moved`: the
    bytes of the inputs and outputs, of the operator itself."""

    name: str
    side: Side
    ours: bool = False
    skipped: str = ""
    calls: int = 0
    moved: int = 0
    peak_memory: int | None = None
    errors: Errors | None = None
