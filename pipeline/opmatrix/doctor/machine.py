"""The system, Python, the compiler with its headers, ninja, ONNX Runtime's headers, and space on the disk."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from opmatrix.basics.errors import REMEDY, ToolchainError, one_line
from opmatrix.basics.finding import Finding, note, ok, wrong
from opmatrix.environments import bootstrap
from opmatrix.toolchain import find
from opmatrix.toolchain.ort_headers import find_headers

_OLDEST = (3, 11)  # whose syntax this package has
# What each library is compiled from, in small: the standard library's headers, C++20 and a shared library.
_PROGRAM = """#include <cstdint>
#include <span>
#include <string>
#include <vector>
extern "C" int64_t opmatrix(std::span<int64_t> x) { return std::vector<int64_t>(x.begin(), x.end()).size(); }
"""
_COMPILER = "Install a newer GCC or Clang with its standard library (Debian: apt install g++), or set CXX to its path"
_SECONDS = 60  # for a program that answers in one
_FULL, _LOW = 100_000_000, 1_000_000_000  # bytes: the operators of the seeds need 40 MB, their wheel as much


def system() -> Iterator[Finding]:
    """Is it a Linux that the wheels of torch and ONNX Runtime are for?"""
    try:
        bootstrap.check_machine()
    except bootstrap.SetupError as error:
        yield from_message("system", str(error))
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    library, version = platform.libc_ver()
    cores = len(os.sched_getaffinity(0))
    yield ok("system", f"Linux x86-64, {library} {version}, {cores} cores, {memory:.1f} GB of memory")


def python() -> Iterator[Finding]:
    """Is it a Python that opmatrix runs in?"""
    found = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    if platform.python_implementation() == "CPython" and sys.version_info[:2] >= _OLDEST:
        yield ok("Python", found)
    else:
        yield wrong("Python", f"found {found}, allowed: CPython 3.11 or newer",
                    "Install one, and make the environment with it")  # fmt: skip
    if home := os.environ.get("PYTHONHOME"):
        yield note("Python", f"PYTHONHOME is {home!r}, from which each Python reads its modules. Unset it")


def compiler(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Is there a compiler, and does it compile and link C++20?"""
    try:
        command = find.find_compiler(environ)
    except ToolchainError as error:
        yield from_message("compiler", str(error))
        return
    shown = f"{_version(command)} ({shlex.join(command)})"
    if said := _compile(command):
        yield wrong("compiler", f"{shown} does not compile a small C++20 library: {said}", _COMPILER)
    else:
        yield ok("compiler", f"{shown} compiles and links C++20")
    if read := [name for name in find.OBEYED if environ.get(name)]:
        yield note("compiler", f"reads {', '.join(f'{name}={environ[name]}' for name in read)}")
    path = environ.get("PATH")
    if not any(shutil.which(f"ld.{name}", path=path) for name in find.LINKERS):
        yield note("linker", "the compiler's own; lld links faster (Debian, Ubuntu: apt install lld)")
    if not said:
        yield from _sanitizers(command)


def _sanitizers(command: Sequence[str]) -> Iterator[Finding]:
    """Does the compiler have what `doit sanitize` links?"""
    kinds = ("address,undefined", "thread")
    lost = [kind for kind in kinds if _compile(command, f"-fsanitize={kind}", text="int main() {}\n")]
    if lost:
        yield note("sanitizers", f"{' and '.join(lost)}: the compiler has none. `doit sanitize` alone needs them "
                                 "(Debian, Ubuntu: apt install g++)")  # fmt: skip


def ninja(environ: Mapping[str, str]) -> Iterator[Finding]:
    try:
        program = find.find_ninja(environ)
    except ToolchainError as error:
        yield from_message("ninja", str(error))
        return
    version, code = _output([program, "--version"])
    if code:
        yield wrong("ninja", f"{program} does not run: {version}", "pip install --force-reinstall ninja")
    else:
        yield ok("ninja", f"{version}, {program}")


def headers(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Are the headers of ONNX Runtime usable?"""
    try:
        found = find_headers(environ)
    except ToolchainError as error:
        yield from_message("headers", str(error))
        return
    yield ok("headers", f"ONNX Runtime {found.version}, {found.path}")


def disk(folders: Mapping[str, Path]) -> Iterator[Finding]:
    """Can the folders, given by their use, be written, have they space, and can libraries in them be loaded?"""
    fine: dict[str, list[str]] = {}
    for use, folder in folders.items():
        there = next((p for p in (folder, *folder.parents) if p.is_dir()), Path("/"))
        try:
            with tempfile.NamedTemporaryFile(dir=there, prefix=".opmatrix-") as file:
                file.write(bytes(1 << 16))
                file.flush()
            free = shutil.disk_usage(there).free
        except OSError as error:
            yield wrong("disk", f"{use} in '{there}' cannot be written: {error.strerror}", REMEDY)
            continue
        size = f"'{there}' has {free / 1e9:.1f} GB free"
        if use == "build" and os.statvfs(there).f_flag & os.ST_NOEXEC:
            yield wrong("disk", f"'{there}' is mounted with noexec, so that no library in it can be loaded",
                        "Move the project to another disk")  # fmt: skip
        elif free < _FULL:
            yield wrong("disk", f"the disk of {use} is full: {size}", "Remove files, or move the project")
        elif free < _LOW:
            yield note("disk", f"the disk of {use} is nearly full: {size}")
        else:
            fine.setdefault(f"{free / 1e9:.0f} GB", []).append(use)
    if fine:
        yield ok("disk", "; ".join(f"{free} free for {', '.join(uses)}" for free, uses in fine.items()))


def from_message(subject: str, message: str) -> Finding:
    """Return the finding of an error's message, whose first sentence is the problem and the rest the remedy."""
    text, _, remedy = message.partition(". ")
    return wrong(subject, text, remedy)


def _version(command: Sequence[str]) -> str:
    """Return the first line of ``--version``, without what is in parentheses."""
    said, code = _output([*command, "--version"])
    return re.sub(r" \([^)]*\)", "", said) if not code else Path(command[0]).name


def _compile(command: Sequence[str], *flags: str, text: str = _PROGRAM) -> str:
    """Compile and link a program; return the first error, or "" if there is none."""
    with tempfile.TemporaryDirectory(prefix="opmatrix-doctor-") as folder:
        source = Path(folder, "program.cc")
        source.write_text(text, encoding="utf-8")
        kind = ["-std=c++20", "-fPIC", "-shared"] if text is _PROGRAM else []
        said, code = _output([*command, *kind, *flags, str(source), "-o", str(source.with_suffix(".so"))])
        return said.replace(f"{folder}/", "") if code else ""


def _output(command: Sequence[str]) -> tuple[str, int]:
    """Return the line with an error in what a program prints, else its first line; and its exit code."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, errors="replace", timeout=_SECONDS,
                              env={**os.environ, "LC_ALL": "C"})  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return one_line(error), 1
    lines = done.stdout.splitlines() or [f"exit code {done.returncode}"]
    errors = [line for line in lines if "error" in line.lower() or "cannot find" in line] if done.returncode else []
    return (errors or lines)[0], done.returncode
