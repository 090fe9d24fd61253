"""Run kernels and bindings with AddressSanitizer and UndefinedBehaviorSanitizer: all cases, drawn inputs and invalid
calls, in torch and in ONNX Runtime. Then run kernels alone with ThreadSanitizer (the stage `races`).

Both libraries are compiled for the sanitizers, and the stages that load them start with the sanitizers' runtimes
preloaded. A fault ends its process and prints the line of the source and the stack.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import SanitizeError, UsageError
from opmatrix.basics.step_log import SAY_DONE, Progress, last_running
from opmatrix.declaration.load import Operator
from opmatrix.ort_checks.thread_sanitizer import MARKS as RACES
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, Cases, Outcome, Verdict
from opmatrix.signature.signature import OWN_TORCH, has_kernel, has_ort_library, has_torch_library, is_own
from opmatrix.toolchain.find import find_toolchain

# Also libstdc++: without it the first C++ exception would end the process.
RUNTIMES = ("libasan.so", "libubsan.so", "libstdc++.so")
# Stages that load no library of an operator, and run without the sanitizers' runtimes.
UNWATCHED = ("compile", "races")
UNSANITIZED = ("races",)  # it has no option --sanitized
# The rows of the verdict: what ran.
ADDRESSES, THREADS = "AddressSanitizer and UndefinedBehaviorSanitizer", "ThreadSanitizer"
# Python and the frameworks free little when they end, which leak detection would report.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def run(paths: Paths, operator: Operator, *, cell: Cell) -> None:
    """Run the stages that load libraries on the models of `cell`; write the verdict. Raises SanitizeError."""
    if not has_ort_library(operator.spec):
        raise UsageError(f"{operator.name} has no library that opmatrix builds: ONNX Runtime's own kernel computes it")
    paths.races_record(operator.name).unlink(missing_ok=True)
    detail, racing = "", False
    environ = {**os.environ, **variables()}
    try:
        every, progress = list(commands(operator, cell)), Progress(quiet=0)
        for done, command in enumerate(every):
            progress.show(f"stage {done + 1} of {len(every)}: {' '.join(command[:2])}")
            racing = command[0] == "races"
            words = command if command[0] in UNSANITIZED else (*command, "--sanitized")
            _run(paths, words, os.environ if command[0] in UNWATCHED else environ)
    except SanitizeError as error:
        detail = str(error)
    outcome: Outcome = "failed" if detail else "verified"
    # A row for each sanitizer that ran, and for ThreadSanitizer where it could not, with its record; it runs last.
    first: Outcome = "verified" if racing else outcome
    rows = [CaseResult(case=ADDRESSES, model="", outcome=first, detail="" if racing else detail)]
    if racing:
        record = paths.races_record(operator.name)
        found: dict[str, Any] = (
            {"outcome": outcome, "detail": detail} if detail else json.loads(record.read_text(encoding="utf-8"))
        )
        rows.append(CaseResult(case=THREADS, model="", **found))
    for row in rows:
        print(f"{row.case}: {row.outcome}" + (f": {row.detail}" if row.detail and row.outcome != "failed" else ""))
    made = Verdict(op=operator.name, lowering="custom", cell=cell, outcome=outcome, detail=detail, cases=Cases(rows))
    verdict.write(paths.sanitized_verdict(operator.name), made)
    if detail:
        raise SanitizeError(detail)


def commands(operator: Operator, cell: Cell) -> Iterator[tuple[str, ...]]:
    """Yield the stages with their arguments, without ``--sanitized``."""
    spec = operator.spec
    for name in (*spec.uses, spec.name):
        yield "compile", name
    if has_torch_library(spec):
        # A handwritten binding checks only what its author decided.
        own = is_own(OWN_TORCH, spec, operator.handwritten_files)
        parts = ("kernel", "search") if own else ("kernel", "search", "forbidden")
        yield "register", spec.name, *(word for part in parts for word in ("--part", part))  # torch loads once
    yield "verify", spec.name, "--cell", str(cell)
    if has_kernel(spec):
        yield "ort-fuzz", spec.name
        yield "races", spec.name  # the kernel alone: those of `uses` have a step of their own


def _run(paths: Paths, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "opmatrix", *arguments]
    print(shlex.join(command), flush=True)
    reading, writing = os.pipe()
    done = subprocess.run(
        command,
        cwd=paths.root,
        env={**environ, SAY_DONE: str(writing)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(writing,),
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        finished = answer.read() != b""
    if done.returncode != 0 or not finished:
        early = "" if done.returncode else " before it was done: code in it called exit"
        raise SanitizeError(f"{shlex.join(command)} ended with {done.returncode}{early}:\n{_message(done.stdout)}")


def _message(output: str) -> str:
    """Return which case ran, and the message of a sanitizer, or the last lines of the output where there is none."""
    lines = output.splitlines()
    at = [f"at {running}"] if (running := last_running(output)) else []
    marks = ("ERROR: AddressSanitizer", "runtime error: ", *RACES)
    first = next((n for n, line in enumerate(lines) if any(mark in line for mark in marks)), None)
    return "\n".join([*at, *(lines[-20:] if first is None else lines[first : first + 40])])


def variables() -> dict[str, str]:
    """Return the environment variables of a watched process. Raises SanitizeError without the compiler's runtimes."""
    compiler, runtimes = find_toolchain(os.environ).compiler, list[str]()
    for name in RUNTIMES:
        found = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if not Path(found).is_absolute():
            raise SanitizeError(f"{shlex.join(compiler)} has no {name}. Set CXX to g++ with its sanitizers")
        runtimes.append(found)
    return {"LD_PRELOAD": ":".join(runtimes), **OPTIONS}
