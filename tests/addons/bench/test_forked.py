"""A forked process answers, and its death is a message."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import Any

import pytest

from opmatrix.addons.bench.forked import DiedError, Forked, StoppedError


def test_it_answers_with_what_it_has_of_its_parent_and_leaves_no_process() -> None:
    kept = [3]

    def answer(message: Any) -> Any:
        kept.append(message)
        return kept

    with Forked(lambda: answer) as process:
        assert process.ask(4) == [3, 4] and process.ask(5) == [3, 4, 5]
    with Forked(lambda: lambda _: os.getpid()) as process:
        number = process.ask(None)
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    assert kept == [3]


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "died of SIGSEGV"),
        (lambda: os._exit(7), "ended with status 7"),
        (lambda: 1 / 0, "ended with status 1"),
    ],
)
def test_a_death_is_told(end: Any, how: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Forked(lambda: lambda _: end()) as process:
        with pytest.raises(DiedError, match=f"^{how}$"):
            process.ask(None)
        with pytest.raises(DiedError, match=r"^has ended$"):
            process.ask(None)
    assert ("ZeroDivisionError" in capfd.readouterr().err) == (how == "ended with status 1")


def test_what_does_not_return_is_stopped_with_what_it_started() -> None:
    ours, started = os.pipe()

    def answer(_: object) -> None:
        subprocess.Popen(["sleep", "3600"], pass_fds=(started,))
        time.sleep(3600)

    with Forked(lambda: answer, seconds=0.5) as process:
        os.close(started)
        with pytest.raises(StoppedError, match=r"^the peer 'p' did not return within 0\.5 s and was stopped$"):
            process.ask(None, what="the peer 'p'")
        assert os.read(ours, 1) == b"", "no process has the other end of the pipe"
        with pytest.raises(DiedError, match=r"^has ended$"):
            process.ask(None)


def test_it_ends_with_its_parent() -> None:
    ours, started = os.pipe()

    def answer(_: object) -> None:
        os.write(started, b"x")
        time.sleep(3600)

    if not (parent := os.fork()):
        Forked(lambda: answer).ask(None)
    os.close(started)
    assert os.read(ours, 1) == b"x"
    os.kill(parent, signal.SIGKILL)
    os.waitpid(parent, 0)
    assert os.read(ours, 1) == b""
