"""Find out whether a compiler has ThreadSanitizer, and run a program with it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from opmatrix.basics.errors import SanitizeError

OPTIONS = {"TSAN_OPTIONS": "halt_on_error=1:history_size=4"}
MOST_LINES = 40
# In the first line of a report: a race, a signal.
MARKS = ("WARNING: ThreadSanitizer", "ERROR: ThreadSanitizer")
# What ThreadSanitizer prints where the kernel puts memory at random addresses that it does not expect.
_MAPPING = "unexpected memory mapping"
_FIXED = ("setarch", "-R")  # without random addresses
# Frames of the program around the kernel.
_OUTER = re.compile(r"^ +#\d+ .*(races\.cc|race_driver|/c\+\+/.*/std_thread\.h|<null> <null>)")


class UnsupportedError(Exception):
    """There is no ThreadSanitizer, or it does not run here; the message says why."""


def probe(compiler: Sequence[str], folder: Path) -> list[str]:
    """Return the words before a program that make it run: none, or ``setarch -R``. Raises UnsupportedError."""
    source, program = folder / "probe.cc", folder / "probe"
    source.write_text("int main() {}\n", encoding="utf-8")
    command = [*compiler, "-fsanitize=thread", str(source), "-o", str(program)]
    done = _output(command)
    if done.returncode != 0:
        last = " ".join(done.stdout.split())[-300:]
        raise UnsupportedError(
            f"{shlex.join(compiler)} has no ThreadSanitizer: {last}. Install it, or set CXX to a compiler that has it"
        )
    found = _output([str(program)])
    if found.returncode == 0:
        return []
    if _MAPPING in found.stdout and (setarch := shutil.which(_FIXED[0])):
        fixed = [setarch, *_FIXED[1:]]
        if _output([*fixed, str(program)]).returncode == 0:
            return fixed
    last = " ".join(found.stdout.split())[-300:]
    raise UnsupportedError(
        f"a program with ThreadSanitizer does not run here: {last or _ended(found.returncode)}. Where it says "
        f"{_MAPPING!r}: sysctl vm.mmap_rnd_bits=28, or allow `setarch -R`"
    )


def run_program(command: Sequence[str]) -> str:
    """Run the program and return the last line that it prints. Raises SanitizeError with the report of a race."""
    print("$", shlex.join(command), flush=True)
    done = _output(command)
    if done.returncode != 0:
        raise SanitizeError("\n".join(filter(None, [report(done.stdout), _ended(done.returncode)])))
    return done.stdout.strip().rpartition("\n")[2]


def report(output: str) -> str:
    """Return the first report of ThreadSanitizer, or else the last lines."""
    lines = output.splitlines()
    first = next((n for n, line in enumerate(lines) if any(mark in line for mark in MARKS)), None)
    if first is None:
        return "\n".join(lines[-20:])
    call = [line for line in lines if line.startswith("Call: ")][:1]
    # How the program started its threads is the same in all reports.
    kept = [line for line in lines[first:] if not line.startswith(("=====", "Call: ")) and not _OUTER.search(line)]
    started = next((n for n, line in enumerate(kept) if line.startswith("  Thread T")), len(kept))
    return "\n".join([*kept[:started][:MOST_LINES], *(line for line in kept if line.startswith("SUMMARY")), *call])


def _ended(returncode: int) -> str:
    return f"it died of {signal.Signals(-returncode).name}" if returncode < 0 else f"it ended with {returncode}"


def _output(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env={**os.environ, **OPTIONS},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
