"""A digest of the programs that a compiler's command runs, such as cc1plus, as and ld: an upgrade of one in place can
change objects and libraries, and the command itself is only a driver of 1 MB.

Every doit command asks for the digest. So it is kept with the marks of the programs, which take 30 MB to read and a
process each to find.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from opmatrix.files import Mark, mark, sha256, write_text

# What `-print-prog-name` is asked for. The linker that -fuse-ld selects is looked up by that name as well.
_PROGRAMS = ("cc1plus", "collect2", "as", "ld", "objcopy")
# What a library is linked with: its symbols' versions come from there. Its headers are inputs of the compile step.
_LIBRARIES = ("libstdc++.so", "libgcc.a")
# Where a compiler looks for programs.
_SEARCHED = ("PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")


def digest(compiler: Sequence[str], *, linker: str | None, environ: Mapping[str, str], cache: Path) -> str:
    """Return the digest of all programs and libraries of a compiler's command, from the folder `cache` if their marks
    are those that it was computed with."""
    command = [found for word in compiler if (found := shutil.which(word, path=environ.get("PATH", "")))]
    asked = json.dumps([*compiler, linker, *(environ.get(name, "") for name in _SEARCHED)])
    path = cache / f"{hashlib.sha256(asked.encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, TypeError, KeyError):  # none yet, or a damaged one
        known = json.loads(path.read_text(encoding="utf-8"))
        if {*command} <= known["marks"].keys() and all(mark(p) == _mark(m) for p, m in known["marks"].items()):
            return str(known["digest"])
    files = [*command, *_found(compiler, linker, environ)]
    marks = {file: mark(file) for file in files}  # before they are read
    read = {Path(file).name: sha256(Path(file)) for file in files}
    result = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:16]
    with suppress(OSError):  # a home folder that is not writable: the next command reads them again
        write_text(path, json.dumps({"marks": marks, "digest": result}))
    return result


def _found(compiler: Sequence[str], linker: str | None, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that the compiler runs and links with, as it finds them."""
    names = [f"-print-prog-name={name}" for name in (*_PROGRAMS, *([f"ld.{linker}"] if linker else []))]
    names += [f"-print-file-name={name}" for name in _LIBRARIES]
    for name in names:
        with suppress(OSError):  # what cannot run fails in the compile step, with its message
            done = subprocess.run(
                [*compiler, name], env=dict(environ), capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            answer = done.stdout.strip()  # without a path where the compiler itself searches PATH, or has no such file
            file = answer if Path(answer).is_absolute() else shutil.which(answer or "?", path=environ.get("PATH", ""))
            if file and Path(file).is_file():
                yield str(Path(file).resolve())


def _mark(stored: Sequence[int]) -> Mark:
    mtime, ctime, size, inode = stored
    return mtime, ctime, size, inode
