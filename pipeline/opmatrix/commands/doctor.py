"""`doit doctor`: what a machine and a project need, what is missing, and how to get it.

The standard library is enough, because the packages may be what is missing: ``python -m opmatrix doctor`` runs where
even doit is. Nothing is imported to find its version.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TextIO

from opmatrix.basics.errors import (
    REMEDY,
    OpmatrixError,
    ToolchainError,
    UsageError,
    many,
    one_line,
    print_error,
    printable,
)
from opmatrix.basics.finding import Finding, Mark, note, ok, wrong
from opmatrix.basics.terminal import in_checkout
from opmatrix.commands import doctor_project
from opmatrix.environments import bootstrap, pip_install
from opmatrix.project.paths import PACKAGE, Paths, cache_folder
from opmatrix.project.settings import PACKAGES, find_root
from opmatrix.toolchain import find
from opmatrix.toolchain.ort_headers import find_headers

# The mark, the mark for a terminal without Unicode, and the colour.
_MARKS: Mapping[Mark, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "32"), "wrong": ("✗", "X", "31"), "note": ("○", "-", "33"),
}  # fmt: skip
_WIDTH = len("sanitizers")
_OLDEST = (3, 11)  # whose syntax this package has
# What each library is compiled from, in small: the standard library's headers, C++20 and a shared library.
_PROGRAM = """#include <cstdint>
#include <span>
#include <string>
#include <vector>
extern "C" int64_t opmatrix(std::span<int64_t> x) { return std::vector<int64_t>(x.begin(), x.end()).size(); }
"""
_COMPILER = "Install a newer GCC or Clang with its standard library (Debian: apt install g++), or set CXX to its path"
_INSTALL = "pip install torch --index-url https://download.pytorch.org/whl/cpu && pip install opmatrix"
_SECONDS = 60  # for a program that answers in one
_FULL, _LOW = 100_000_000, 1_000_000_000  # bytes: the operators of the seeds need 40 MB, their wheel as much
# Parts of opmatrix that need more packages: what they are for.
_EXTRAS = {"tox": "choose cells with tox", "mutate": "doit mutate"}
# Libraries without which an import of a package fails.
_LIBRARIES = {
    "torch": ("lib/libtorch_cpu.so", "lib/libc10.so"),
    "onnxruntime": ("capi/onnxruntime_pybind11_state*.so",),
}
# Packages with the same modules under another name, which the keys of steps do not contain.
_OTHER_NAMES = {"onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml"),
                "onnx": ("onnx-weekly",)}  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """Print all findings. Returns 0, 1 if something that doit needs is missing, 2 for a wrong command line."""
    if arguments:
        print_error(f"doctor takes no arguments, found {' '.join(arguments)!r}")
        return UsageError.exit_code
    problems, notes = list[str](), 0
    for one in examine(Path.cwd(), os.environ):
        _print(one, sys.stdout)
        problems += [one.question] if one.mark == "wrong" else []
        notes += one.mark == "note"
    said = f"{many(len(problems), 'problem')}: {', '.join(dict.fromkeys(problems))}"
    after = f"; {many(notes, 'note')}" if notes else ""
    print(f"{said if problems else 'OK: everything that doit needs is here'}{after}", flush=True)
    return int(bool(problems))


def examine(start: Path, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings of all checks for the project around the folder `start`, if there is one."""
    try:
        paths: Paths | None = Paths(find_root(start))
    except UsageError:
        paths = None
    checkout = paths is not None and in_checkout(paths.root)
    cache = cache_folder(environ)
    use: dict[str, Path] = {"build": paths.build} if paths else {}
    try:
        use["temporary files"] = Path(tempfile.gettempdir())
    except FileNotFoundError:  # none can be written
        use["temporary files"] = Path(environ.get("TMPDIR") or "/tmp")
    checks: list[tuple[str, Iterable[Finding]]] = [
        ("system", system()),
        ("Python", python()),
        ("packages", packages("./run doit doctor, which makes .venv" if checkout else _INSTALL)),
        ("compiler", compiler(environ)),
        ("ninja", ninja(environ)),
        ("headers", headers(environ)),
        ("disk", disk({**use, "cache": cache})),
    ]
    if paths:
        checks += [
            ("project", doctor_project.project(paths)),
            (".venv", doctor_project.main_environment(paths.root, environ) if checkout else ()),
            ("lock", doctor_project.lock(paths)),
            ("state", doctor_project.state(paths)),
            ("matrix", doctor_project.environments(paths)),
            ("cache", doctor_project.shared_cache(paths, environ)),
        ]
    else:
        checks.append(("project", [note("project", "none in this folder. Make one: opmatrix new --project DIR")]))
    checks.append(("sizes", doctor_project.sizes(paths, cache)))
    for subject, check in checks:
        yield from findings(subject, check)


def findings(subject: str, check: Iterable[Finding]) -> Iterator[Finding]:
    """Yield what a check finds. An error that ends it is a finding: its first sentence is the problem, and the rest
    the remedy."""
    try:
        yield from check
    except (OpmatrixError, pip_install.SetupError) as error:
        yield _from_error(subject, error)
    except Exception as error:  # a broken machine may fail in a way that no check foresees
        yield wrong(subject, f"cannot be examined: {type(error).__name__}: {error}")


def _from_error(subject: str, error: Exception) -> Finding:
    text, _, remedy = str(error).partition(". ")
    return wrong(subject, text, remedy)


def _print(finding: Finding, stream: TextIO) -> None:
    """Print a finding, wrapped at words in a terminal, with its remedy on lines of its own."""
    mark, plain, colour = _MARKS[finding.mark]
    try:
        mark.encode(stream.encoding or "ascii")
    except UnicodeEncodeError:
        mark = plain
    if stream.isatty() and not os.environ.get("NO_COLOR"):
        mark = f"\x1b[{colour}m{mark}\x1b[0m"
    width = shutil.get_terminal_size().columns if stream.isatty() else 10**6
    indent = " " * (_WIDTH + 4)

    def wrapped(text: str) -> str:
        return textwrap.fill(printable(" ".join(text.split())), max(width, 40), initial_indent=indent,
                             subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)  # fmt: skip

    print(f"{mark} {finding.question:<{_WIDTH}}  {wrapped(finding.text).lstrip()}", file=stream)
    if finding.remedy:
        print(wrapped(f"-> {finding.remedy}"), file=stream, flush=True)


def system() -> Iterator[Finding]:
    """Is it a Linux that the wheels of torch and ONNX Runtime are for?"""
    bootstrap.check_machine()
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


def packages(install: str) -> Iterator[Finding]:
    """Are the required packages there, in versions that fit? `install`: the remedy for missing ones."""
    try:
        yield ok("opmatrix", f"{metadata.version('opmatrix')}, {PACKAGE}")
        required = metadata.requires("opmatrix") or []
    except metadata.PackageNotFoundError:
        yield wrong("opmatrix", f"it is not installed for {sys.executable}, only imported from {PACKAGE}", install)
        required = [*PACKAGES]
    lost, versions, extras = [], {}, dict[str, list[str]]()
    for requirement in required:
        # Such as ``tox>=4.30.3; extra == 'tox'``.
        ((name, limits, extra),) = re.findall(r"^([\w.-]+)([^;]*)(?:;.*extra == ['\"](\w+))?", requirement)
        version, limits = _installed(name), limits.strip()
        if extra:
            if extra in _EXTRAS and version is None:
                extras.setdefault(extra, []).append(name)
        elif version is None:
            lost.append(name)
        elif why := too_old_or_new(version, limits):
            yield wrong("packages", f"{name} {version} is {why}", f"pip install '{name}{limits}'")
        else:
            versions[name] = version
    if lost:
        there = [other for name in lost for other in _OTHER_NAMES.get(name, ()) if _installed(other)]
        instead = f"; {', '.join(there)} does not count, because only the other name is pinned" if there else ""
        yield wrong("packages", f"not installed for {sys.executable}: {', '.join(lost)}{instead}", install)
    if versions:
        yield ok("packages", ", ".join(f"{name} {version}" for name, version in versions.items()))
    yield from _files(versions)
    for extra, names in extras.items():
        yield note("packages", f"without {', '.join(names)}, needed only for: {_EXTRAS[extra]}. "
                               f"pip install 'opmatrix[{extra}]'")  # fmt: skip


def too_old_or_new(version: str, limits: str) -> str:
    """Return why a version breaks limits such as ``>=0.37,<0.38``, or ""."""
    for sign, limit in re.findall(r"(>=|<)\s*([\d.]+)", limits):
        length = max(len(_numbers(version)), len(_numbers(limit)))
        one, other = ((*_numbers(v), *[0] * length)[:length] for v in (version, limit))
        if (one < other) == (sign == ">="):
            return f"too {'old' if sign == '>=' else 'new'}: opmatrix needs {limits}"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return ``(2, 13, 0)`` for ``2.13.0+cpu`` and ``(1, 21)`` for ``1.21rc1``."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _files(versions: Mapping[str, str]) -> Iterator[Finding]:
    """Find a package of which an installation that was interrupted left a part."""
    for name, patterns in _LIBRARIES.items():
        if name not in versions:
            continue
        spec = importlib.util.find_spec(name)
        folder = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else Path()
        if lost := [pattern for pattern in patterns if not spec or not any(folder.glob(pattern))]:
            yield wrong("packages", f"{name} {versions[name]} lacks {lost[0]} in {folder}",
                        f"pip install --force-reinstall --no-deps {name}=={versions[name]}")  # fmt: skip
        elif name == "torch":
            try:
                find.find_torch()
            except ToolchainError as error:
                yield _from_error("packages", error)


def compiler(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Is there a compiler, and does it compile and link C++20?"""
    command = find.find_compiler(environ)
    said, code = _output([*command, "--version"])
    version = Path(command[0]).name if code else re.sub(r" \([^)]*\)", "", said)
    shown = f"{version} ({shlex.join(command)})"
    if fault := _compile(command, "-std=c++20", "-fPIC", "-shared", text=_PROGRAM):
        yield wrong("compiler", f"{shown} does not compile a small C++20 library: {fault}", _COMPILER)
    else:
        yield ok("compiler", f"{shown} compiles and links C++20")
    if read := [name for name in find.OBEYED if environ.get(name)]:
        yield note("compiler", f"reads {', '.join(f'{name}={environ[name]}' for name in read)}")
    path = environ.get("PATH")
    if not any(shutil.which(f"ld.{name}", path=path) for name in find.LINKERS):
        yield note("linker", "the compiler's own; lld links faster (Debian, Ubuntu: apt install lld)")
    kinds = () if fault else ("address,undefined", "thread")  # what `doit sanitize` links
    if lost := [kind for kind in kinds if _compile(command, f"-fsanitize={kind}", text="int main() {}\n")]:
        yield note("sanitizers", f"{' and '.join(lost)}: the compiler has none. `doit sanitize` alone needs them "
                                 "(Debian, Ubuntu: apt install g++)")  # fmt: skip


def ninja(environ: Mapping[str, str]) -> Iterator[Finding]:
    program = find.find_ninja(environ)
    version, code = _output([program, "--version"])
    if code:
        yield wrong("ninja", f"{program} does not run: {version}", "pip install --force-reinstall ninja")
    else:
        yield ok("ninja", f"{version}, {program}")


def headers(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Are the headers of ONNX Runtime usable?"""
    found = find_headers(environ)
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


def _compile(command: Sequence[str], *flags: str, text: str) -> str:
    """Compile and link a program; return the first error, or "" if there is none."""
    with tempfile.TemporaryDirectory(prefix="opmatrix-doctor-") as folder:
        source = Path(folder, "program.cc")
        source.write_text(text, encoding="utf-8")
        said, code = _output([*command, *flags, str(source), "-o", str(source.with_suffix(".so"))])
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
