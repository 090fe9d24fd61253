"""Run kernels and bindings under AddressSanitizer and UndefinedBehaviorSanitizer: all cases, and drawn inputs.

Both libraries are compiled anew for them, and the stages that run libraries are started with the sanitizers' runtime
loaded before all else. A fault ends the process that made it, with the place in the source and the stack.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.errors import SanitizeError
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.matrix import Cell
from pipeline.schema import has_ort_library, has_torch_library
from pipeline.toolchain.find import find_toolchain

# Of the runtimes, libstdc++ is there as well: without it the first C++ exception would end the process.
RUNTIMES = ("libasan.so", "libubsan.so", "libstdc++.so")
# Python and the frameworks free little when they end: what leaks cannot be told from that.
OPTIONS = {"ASAN_OPTIONS": "detect_leaks=0:strict_string_checks=1", "UBSAN_OPTIONS": "print_stacktrace=1"}


def run(layout: Layout, operator: Operator, *, cells: Sequence[Cell]) -> None:
    """Run everything that loads a library of ours; the models are those of `cells`, exported before.

    Raises SanitizeError with what a sanitizer found, or with what else failed.
    """
    environ = {**os.environ, "LD_PRELOAD": ":".join(_runtimes()), **OPTIONS}
    for command in _commands(operator, cells):
        watched = command[0] != "compile"
        _run(layout, (*command, "--sanitized"), environ if watched else os.environ)


def _commands(operator: Operator, cells: Sequence[Cell]) -> Iterator[tuple[str, ...]]:
    spec = operator.spec
    if not has_torch_library(spec) and not has_ort_library(spec):
        return
    for name in (*spec.uses, spec.name):
        yield "compile", name
    if has_torch_library(spec):
        yield "register", spec.name, "--part", "kernel"
        yield "register", spec.name, "--part", "search"
    if has_ort_library(spec):
        yield from (("verify", spec.name, "--cell", str(cell)) for cell in cells)


def _run(layout: Layout, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
    command = [sys.executable, "-m", "pipeline", *arguments]
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
