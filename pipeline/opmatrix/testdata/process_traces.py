"""What code leaves in this process that no hook of Python sees: libraries, child processes, pipes and shared memory.

A library's own code can load another one, start a process or connect to one. Linux lists all of that in /proc.
"""

from __future__ import annotations

import functools
import os
import resource
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from opmatrix.files import sha256
from opmatrix.processes import children

# Where a package manager or an administrator installs libraries.
_SYSTEM = tuple(map(Path, ("/usr", "/lib", "/lib64", "/nix/store", "/gnu/store")))
_SHARED_MEMORY = "/dev/shm/"

_at_start: dict[str, frozenset[str]] = {}


def start() -> None:
    """Remember what is mapped now, before any code of a project runs in this process or in a fork of it."""
    _at_start["mapped"] = frozenset(_mapped())


@dataclass(frozen=True, kw_only=True)
class Traces:
    """What a process has at one moment. `ended`: page faults of the children that it has waited for, which grow with
    each of them."""

    mapped: frozenset[str]
    children: frozenset[int]
    ended: int
    connections: frozenset[str]

    @classmethod
    def before(cls) -> Traces:
        """Return what a process has before a reference runs: after `start`, no library and no child of the project."""
        mapped = _at_start.get("mapped")
        return cls.now() if mapped is None else cls._of(mapped, frozenset())

    @classmethod
    def now(cls) -> Traces:
        return cls._of(frozenset(_mapped()), frozenset(children(os.getpid())))

    @classmethod
    def _of(cls, mapped: frozenset[str], running: frozenset[int]) -> Traces:
        return cls(
            mapped=mapped,
            children=running,
            ended=resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt,
            connections=frozenset(_connections()),
        )

    def since(self, before: Traces, root: Path, *, waited: bool) -> Iterator[str]:
        """Yield what came since `before` that a reference in the project `root` must not leave. `waited`: it may have
        waited for a process."""
        _built.cache_clear()  # another step may have made a library since
        for path in sorted(self.mapped - before.mapped):
            if path.startswith(_SHARED_MEMORY):
                yield f"shares memory with other processes ({path}), which may run the kernel"
            elif not is_installed(Path(path), root):
                yield f"has loaded {path}, allowed: libraries of the system and of installed packages"
            elif made := copied_from(Path(path), root):
                yield f"has loaded {path}, a copy of {made}, which this build made, so it agrees with any fault"
        if self.children - before.children:
            yield "has a child process, which may run the kernel"
        elif (
            not waited and self.ended > before.ended and self.children >= before.children
        ):  # not one that was there before
            yield "has waited for a child process, which may have run the kernel"
        for kind in sorted({name.partition(":")[0] for name in self.connections - before.connections}):
            yield f"has a {kind} to another process, which may run the kernel"


def is_installed(path: Path, root: Path) -> bool:
    """Return whether a library belongs to the system, to Python or to an installed package, and not to a project."""
    inside = [folder for folder in (*_SYSTEM, *_python_folders()) if path.is_relative_to(folder)]
    return any(folder.is_relative_to(root) or not path.is_relative_to(root) for folder in inside)


def copied_from(path: Path, root: Path) -> str:
    """Return the library in the project's build/ of which an installed one is a copy, as from a wheel; or ""."""
    if path.is_relative_to(Path(sys.base_prefix)) or any(map(path.is_relative_to, _SYSTEM)):
        return ""
    with suppress(OSError):  # the file is gone
        for made in _built(root / "build").get(path.stat().st_size, ()):
            if sha256(made) == sha256(path):
                return str(made.relative_to(root))
    return ""


@functools.cache
def _built(build: Path) -> Mapping[int, Sequence[Path]]:
    """Return the files in build/ by their size; `Traces.since` looks anew."""
    found: dict[int, list[Path]] = defaultdict(list)
    for folder, _, names in os.walk(build):
        for name in names:
            with suppress(OSError):  # it is gone, or a link to nothing
                found[os.stat(f"{folder}/{name}").st_size].append(Path(folder, name))  # noqa: PTH116 - thousands
    return found


@functools.cache
def _python_folders() -> tuple[Path, ...]:
    """Return the folders of Python and of its packages, where `start` or the first audit finds them."""
    packages = [entry for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))]
    return tuple(Path(entry).resolve() for entry in (sys.prefix, sys.base_prefix, *packages))


def _mapped() -> Iterator[str]:
    """Yield the files whose code this process can run, and shared memory."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        if "xp " in line or "xs " in line or _SHARED_MEMORY in line:  # executable, or shared
            _, _, _, _, inode, *name = line.split(maxsplit=5)
            if name and inode != "0":
                yield name[0]


def _connections() -> Iterator[str]:
    """Yield ``pipe:[123]`` and ``socket:[124]``."""
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - each step calls this
        with suppress(OSError):  # the descriptor of the folder itself
            name = os.readlink(f"/proc/self/fd/{entry}")  # noqa: PTH115 - as above
            if name.startswith(("pipe:", "socket:")):
                yield name
