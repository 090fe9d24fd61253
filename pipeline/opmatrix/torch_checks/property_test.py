"""The "search" part of register: call the kernel in torch with drawn inputs. It must agree with the reference, and
raise where that raises.

hypothesis is imported only to shrink a failure, so that the step stays fast after an edit of a kernel.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
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

Tell = Callable[[str], None]


def run(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, Any]]:
    """Return what was tried. On a failure, writes the smallest case and raises RegisterError.

    The kernel runs in a forked child: if it crashes, the parent names the case, and shrinks it in further children.
    """
    check = KernelCheck.of(paths, operator, loaded)
    drawn = drawn_cases.read_all(paths.drawn_inputs(operator.name), operator.name)
    drawn = replace(drawn, cases=[c for c in drawn.cases if not why_no_dtype(model_dtypes(operator.spec, c.model))])
    if paths.sanitized or not can_fork():  # a sanitizer says more than a smaller input
        return _search(paths, operator, check, drawn, lambda name: None)

    try:
        ended = in_child(partial(_search, paths, operator, check, drawn))
    except RegisterError as error:
        raise RegisterError("\n".join([str(error), *_over_drawn(check, drawn.cases)])) from None
    if ended.answer is not None:
        return list(ended.answer)
    first = next((one for one in drawn.cases if one.model.name == ended.told), None)
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


def _search(paths: Paths, operator: Operator, check: KernelCheck, drawn: Drawn, tell: Tell) -> list[dict[str, Any]]:
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

    @torch.no_grad()
    def call(tell: Tell) -> str:
        return in_common_of_drawn(check.spec, drawn, check.problem)

    return over_cases(in_child(call, quiet=True, seconds=OVER_SECONDS).answer or "")


def _crash(paths: Paths, operator: Operator, check: KernelCheck, first: DrawnCase, ended: Ended) -> str:
    """Return the message of a crash: with the smallest case that ends the process in the same way."""

    def crashes(model: Model) -> bool:
        @torch.no_grad()
        def call(tell: Tell) -> str:
            return check.problem(drawn_cases.evaluate(operator.spec, model, check.reference))

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

    smaller: Model | None = None
    for old in large.sizes(operator, model):
        low, high, at = 1, old, smaller or model
        while low < high:
            middle = (low + high) // 2
            candidate = large.with_size(operator, at, old, middle)
            if candidate is not None and fails(candidate):
                smaller, high = candidate, middle
            else:
                low = middle + 1
    return smaller


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended: what it told last, its answer, or None if it ended before it returned one."""

    told: str
    answer: Any
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


def in_child(function: Callable[[Tell], Any], *, quiet: bool = False, seconds: int = 0) -> Ended:
    """Call `function` in a forked child, with a function that tells the parent what runs next. Raises RegisterError as
    it does, and RuntimeError for any other error. `quiet` drops what the child prints, and after `seconds` the child
    ends with SIGALRM."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(function, sending, quiet, seconds))
    child.start()
    sending.close()
    messages: dict[str, Any] = {}  # the last of each kind
    with receiving, suppress(EOFError):
        while True:
            kind, value = receiving.recv()
            messages[kind] = value
    child.join()
    assert child.exitcode is not None
    if error := messages.get("raised"):
        raise error
    answer = messages.get("answer") if child.exitcode == 0 else None
    return Ended(told=messages.get("told", ""), answer=answer, status=child.exitcode)


def _run(function: Callable[[Tell], Any], sending: Connection, quiet: bool, seconds: int) -> None:
    faulthandler.disable()  # the parent says more than a stack of Python
    if quiet:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)
    try:
        sending.send(("answer", function(lambda name: sending.send(("told", name)))))
    except RegisterError as error:
        sending.send(("raised", error))
    except BaseException:
        sending.send(("raised", RuntimeError(f"in a child process:\n{traceback.format_exc()}")))
