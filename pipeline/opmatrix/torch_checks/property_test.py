"""The "search" part of register: call the kernel in torch with drawn inputs. It must agree with the reference, and
raise where that raises.

hypothesis is imported only to shrink a failure, so that the step stays fast after an edit of a kernel.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from opmatrix.basics.errors import RegisterError, UsageError
from opmatrix.declaration.load import Operator
from opmatrix.judge.message import over_cases
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.search import coverage
from opmatrix.search import drawn as drawn_cases
from opmatrix.search.drawn import Drawn, DrawnCase, keep, stored
from opmatrix.signature.signature import model_dtypes
from opmatrix.spec import Model
from opmatrix.torch_checks.kernel_check import KernelCheck
from opmatrix.torch_ops.call import torch_minor
from opmatrix.torch_ops.features import why_no_dtype
from opmatrix.torch_ops.load import LoadedLibrary

MORE_EXAMPLES = 20  # times as many examples, to find a failure again and shrink it
CRASH_EXAMPLES = 1000  # each in a process of its own
CRASH_SECONDS = 10  # of one of them
ALL_CRASH_SECONDS = 20.0  # of all
SECONDS = 60.0  # for shrinking: a step that is stopped for its time would report no failure
OVER_SECONDS = 20  # for all drawn inputs, once one fails
SMALLEST = "The smallest that hypothesis found"


def run(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, Any]]:
    """Return what was tried. On a failure, writes the smallest case and raises RegisterError.

    The kernel runs in a forked child: if it crashes, the parent names the case, and shrinks it in further children.
    """
    check = KernelCheck.of(paths, operator, loaded)
    drawn = drawn_cases.read_all(paths.drawn_inputs(operator.name), operator.name)
    drawn = replace(drawn, cases=[c for c in drawn.cases if not why_no_dtype(model_dtypes(operator.spec, c.model))])
    if paths.sanitized or not can_fork():  # a sanitizer says more than a smaller input
        return _search(paths, operator, check, drawn, lambda name: None)

    def search(tell: Callable[[str], None]) -> bytes:
        try:
            return json.dumps({"results": _search(paths, operator, check, drawn, tell)}).encode()
        except RegisterError as error:
            return json.dumps({"error": str(error)}).encode()

    ended = in_child(search)
    if ended.answer is not None:
        answer = json.loads(ended.answer)
        if "error" in answer:
            raise RegisterError("\n".join([answer["error"], *_over_drawn(check, drawn.cases)]))
        return list(answer["results"])
    first = next((one for one in drawn.cases if one.model.name == ended.sent), None)
    if first is None:
        raise RegisterError(f"{operator.name} in torch: the search {ended.how}; its output has more")
    raise RegisterError(_crash(paths, operator, check, first, ended))


def replay(paths: Paths, operator: Operator, loaded: LoadedLibrary, *, case: str) -> None:
    """Call the kernel with one drawn case, or with one that was shrunk, in this process: a debugger sees a crash."""
    check = KernelCheck.of(paths, operator, loaded)
    found = stored(paths, operator, case)
    if found is None:
        raise UsageError(
            f"{operator.name} has no drawn case {case!r}. `python -m opmatrix register {operator.name} --part search` "
            "says the name of one that fails"
        )
    with torch.no_grad():
        if problem := check.problem(found):
            raise RegisterError(f"{operator.name}-{case} in torch: {problem}")


def _search(
    paths: Paths, operator: Operator, check: KernelCheck, drawn: Drawn, tell: Callable[[str], None]
) -> list[dict[str, Any]]:
    def fails(one: DrawnCase) -> bool:
        tell(one.model.name)
        return check.problem(one) != ""

    with torch.no_grad():
        first = next(filter(fails, drawn.cases), None)
        if first is None:
            return [coverage.measure(operator, drawn)]

        def candidate_fails(model: Model) -> bool:
            return check.problem(drawn_cases.evaluate(operator.spec, model, check.reference)) != ""

        examples = MORE_EXAMPLES * len(drawn.cases)
        model = smallest(paths, operator, first, candidate_fails, examples=examples, seconds=SECONDS)
        found = drawn_cases.evaluate(operator.spec, model, check.reference) if model else first
        problem, measured = check.problem(found), check.measure(found)
    record = paths.register_manifest(operator.name, "search", torch=torch_minor())
    verdict.write_mismatches(paths.mismatches(record), [measured] if measured else [])
    raise RegisterError(keep(paths, operator, found, problem, where="torch", which=SMALLEST))


def _over_drawn(check: KernelCheck, drawn: Sequence[DrawnCase]) -> list[str]:
    """Return the line of what the drawn inputs that fail as the first failing one have in common, or none, as where one
    of them crashes."""
    from opmatrix.judge.case_facts import in_common_of_drawn  # which only a failure needs

    def call(tell: Callable[[str], None]) -> bytes:
        with torch.no_grad():
            return in_common_of_drawn(check.spec, drawn, check.problem).encode()

    ended = in_child(call, quiet=True, seconds=OVER_SECONDS)
    return over_cases((ended.answer or b"").decode())


def _crash(paths: Paths, operator: Operator, check: KernelCheck, first: DrawnCase, ended: Ended) -> str:
    """Return the message of a crash: with the smallest case that ends the process in the same way."""

    def crashes(model: Model) -> bool:
        def call(tell: Callable[[str], None]) -> bytes:
            with torch.no_grad():
                check.problem(drawn_cases.evaluate(operator.spec, model, check.reference))
            return b""

        one = in_child(call, quiet=True, seconds=CRASH_SECONDS)
        return one.answer is None and one.status == ended.status

    model = smallest(paths, operator, first, crashes, examples=CRASH_EXAMPLES, seconds=ALL_CRASH_SECONDS)
    found = drawn_cases.evaluate(operator.spec, model, check.reference) if model else first
    name = found.model.name
    message = keep(paths, operator, found, f"the kernel {ended.how}", where="torch", which=SMALLEST)
    run = f"python -m opmatrix register {operator.name} --part search --case {name}"
    debug = f"python -m opmatrix compile {operator.name} --debug && gdb --args {run} --debug"
    return f"{message}\nReplay: {run}\nDebug: {debug}"


def smallest(
    paths: Paths,
    operator: Operator,
    first: DrawnCase,
    fails: Callable[[Model], bool],
    *,
    examples: int,
    seconds: float,
) -> Model | None:
    """Return the smallest model on which the kernel fails that is found within `seconds`, or None."""
    until = time.monotonic() + seconds
    failed: set[str] = set()

    def fails_in_time(model: Model) -> bool:
        if time.monotonic() < until and fails(model):
            failed.add(model.name)
        return model.name in failed

    if first.large:
        return _smaller(operator, first.model, fails_in_time)
    from opmatrix.search import draw_models

    return draw_models.find(operator, fails_in_time, examples=examples, home=paths.hypothesis)


def _smaller(operator: Operator, model: Model, fails: Callable[[Model], bool]) -> Model | None:
    """Return the model with each size made as small as it still fails, the largest first, or None if none is smaller.
    A fault above some size is found in as many steps as the size has bits."""
    from opmatrix.search import large  # here, because it imports hypothesis

    found: Model | None = None
    for old in large.sizes(operator, model):
        low, high, at = 1, old, found or model
        while low < high:
            middle = (low + high) // 2
            candidate = large.with_size(operator, at, old, middle)
            if candidate is not None and fails(candidate):
                found, high = candidate, middle
            else:
                low = middle + 1
    return found


_ANSWER, _RAISED = b"\0answer\0", b"\0raised\0"


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended: the last line that it sent, its answer, or None if it ended before it returned one."""

    sent: str
    answer: bytes | None
    status: int

    @property
    def how(self) -> str:
        """How a child without an answer ended: ``died of SIGSEGV``."""
        if self.status < 0:
            return f"died of {signal.Signals(-self.status).name}"
        return f"ended the process with exit code {self.status}"


def can_fork() -> bool:
    """Return whether this process has one thread: those of OpenMP do not survive a fork, and the child would hang."""
    return len([*Path("/proc/self/task").iterdir()]) == 1


def in_child(function: Callable[[Callable[[str], None]], bytes], *, quiet: bool = False, seconds: int = 0) -> Ended:
    """Call `function` in a child; raises RuntimeError where it raises. Its argument is a function that tells the parent
    what runs next. `quiet` drops what the child prints, and after `seconds` the child ends with SIGALRM."""
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    if not (child := os.fork()):
        os.close(reading)
        _run(function, writing, quiet, seconds)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content, _, raised = pipe.read().partition(_RAISED)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if raised:
        raise RuntimeError(f"in a child process:\n{raised.decode()}")
    sent, found, answer = content.partition(_ANSWER)
    last = sent.decode().splitlines()
    return Ended(sent=last[-1] if last else "", answer=answer if found and status == 0 else None, status=status)


def _run(function: Callable[[Callable[[str], None]], bytes], writing: int, quiet: bool, seconds: int) -> None:
    status = 1
    try:
        faulthandler.disable()  # the parent says more than a stack of Python
        if quiet:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            sys.stdout = sys.stderr = os.fdopen(null, "w", closefd=False, encoding="utf-8")
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        answer = function(lambda text: _write(writing, f"{text}\n".encode()))
        _write(writing, _ANSWER + answer)
        status = 0
    except BaseException:
        _write(writing, _RAISED + traceback.format_exc().encode())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]
