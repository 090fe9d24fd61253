"""Run kernels and bindings under AddressSanitizer and UndefinedBehaviorSanitizer: all cases, inputs drawn from the
declaration, and such as it forbids, through torch and through ONNX Runtime.

Both libraries are compiled anew for them, and the stages that run libraries are started with the sanitizers' runtime
loaded before all else. A fault ends the process that made it, with the place in the source and the stack.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opmatrix import verdict
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_TORCH, has_kernel, has_ort_library, has_torch_library, is_own
from opmatrix.errors import SanitizeError, UsageError
from opmatrix.matrix.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.toolchain.find_tools import find_toolchain
from opmatrix.verdict import Outcome, Verdict

# Of the runtimes, libstdc++ is there as well: without it the first C++ exception would end the process.
RUNTIMES = ("libasan.so", "libubsan.so", "libstdc++.so")
# What is run as it is: it loads no library of ours.
UNWATCHED = ("compile", "draw-inputs")
# Python and the frameworks free little when they end: what leaks cannot be told from that.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def run(layout: Paths, operator: Operator, *, cell: Cell) -> None:
    """Run everything that loads a library of ours, and write the verdict; the models are those of `cell`.

    Raises SanitizeError with what a sanitizer found, or with what else failed.
    """
    if not has_ort_library(operator.spec):
        raise UsageError(f"{operator.name} has no library of ours: ONNX Runtime's own kernel computes it")
    started, detail = time.perf_counter(), ""
    environ = {**os.environ, "LD_PRELOAD": ":".join(_runtimes()), **OPTIONS}
    try:
        for command in _commands(operator, cell):
            words = command if command[0] == "draw-inputs" else (*command, "--sanitized")
            _run(layout, words, os.environ if command[0] in UNWATCHED else environ)
    except SanitizeError as error:
        detail = str(error)
    seconds = round(time.perf_counter() - started, 3)
    outcome: Outcome = "failed" if detail else "verified"
    found = Verdict(op=operator.name, lowering="custom", cell=cell, outcome=outcome, detail=detail, seconds=seconds)
    verdict.write(layout.sanitized_verdict(operator.name), found)
    if detail:
        raise SanitizeError(detail)


def _commands(operator: Operator, cell: Cell) -> Iterator[tuple[str, ...]]:
    spec = operator.spec
    for name in (*spec.uses, spec.name):
        yield "compile", name
    if has_torch_library(spec):
        # A binding that is written by hand refuses what its author chose to.
        own = is_own(OWN_TORCH, spec, operator.handwritten_files)
        parts = ("kernel", "search") if own else ("kernel", "search", "forbidden")
        yield "register", spec.name, *(word for part in parts for word in ("--part", part))  # torch loads once
    yield "verify", spec.name, "--cell", str(cell)
    if has_kernel(spec):
        if spec.torch is None:
            yield "draw-inputs", spec.name  # no step does: in torch there is nothing to search
        yield "ort-fuzz", spec.name


def _run(layout: Paths, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "opmatrix", *arguments]
    print(shlex.join(command), flush=True)
    done = subprocess.run(
        command, cwd=layout.root, env=dict(environ), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise SanitizeError(f"{shlex.join(command)} ended with {done.returncode}:\n{_told(done.stdout)}")


def _told(output: str) -> str:
    """Return what a sanitizer says, from its first line on, or the last lines where none says anything."""
    lines = output.splitlines()
    marks = ("ERROR: AddressSanitizer", "runtime error: ")
    first = next((n for n, line in enumerate(lines) if any(mark in line for mark in marks)), None)
    return "\n".join(lines[-20:] if first is None else lines[first : first + 40])


def _runtimes() -> Iterator[str]:
    """Yield the paths of the compiler's runtimes. Raises SanitizeError where it has none."""
    compiler = find_toolchain(os.environ).compiler
    for name in RUNTIMES:
        found = subprocess.run([*compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        if not Path(found).is_absolute():
            raise SanitizeError(f"{shlex.join(compiler)} has no {name}. Set CXX to g++ with its sanitizers")
        yield found
