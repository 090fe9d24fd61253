"""Find compiler, linker, ninja, torch headers for every doit command: milliseconds, no framework import.

A digest of the programs that a compiler's command runs, such as cc1plus, as and ld, is kept with their marks, since
they take 30 MB to read and a process each to find. An upgrade of one in place can change objects and libraries.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from opmatrix.basics.errors import ToolchainError
from opmatrix.basics.files import mark, sha256, write_text
from opmatrix.basics.version import older
from opmatrix.project.paths import cache_folder

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
        if {*command} <= known["marks"].keys() and all(mark(p) == (*m,) for p, m in known["marks"].items()):
            return str(known["digest"])
    # As the compiler finds them. What cannot run fails in the compile step, with its message.
    files = [*command]
    names = [f"-print-prog-name={name}" for name in (*_PROGRAMS, *([f"ld.{linker}"] if linker else []))]
    for name in (*names, *(f"-print-file-name={name}" for name in _LIBRARIES)):
        with suppress(OSError):
            done = subprocess.run(
                [*compiler, name], env=dict(environ), capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            answer = done.stdout.strip()  # without a path where the compiler itself searches PATH, or has no such file
            file = answer if Path(answer).is_absolute() else shutil.which(answer or "?", path=environ.get("PATH", ""))
            if file and Path(file).is_file():
                files.append(str(Path(file).resolve()))
    marks = {file: mark(file) for file in files}  # before they are read
    read = {Path(file).name: sha256(Path(file)) for file in files}
    result = hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:16]
    with suppress(OSError):  # a home folder that is not writable: the next command reads them again
        write_text(path, json.dumps({"marks": marks, "digest": result}))
    return result


COMPILERS = ("g++", "clang++")
# Three times as fast as the default, bfd; linking is a fifth of the time after an edit.
LINKERS = ("lld", "gold")
# https://gcc.gnu.org/onlinedocs/gcc/Environment-Variables.html
OBEYED = ("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX")
OLDEST_TORCH = "2.9"
# The header that the torch binding needs.
TORCH_SHIM = "torch/csrc/inductor/aoti_torch/c/shim.h"


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """The tools found. `compiler` is a command, since CXX may be ``ccache g++``; `linker` is for ``-fuse-ld``."""

    compiler: tuple[str, ...]
    compiler_identity: str
    settings: tuple[str, ...] = ()  # environment variables that g++ and clang++ read
    linker: str | None
    ninja: str
    torch_include: Path
    torch_version: str

    @property
    def is_gcc(self) -> bool:
        """Whether the compiler uses GCC's OpenMP, as torch does. Decided by its name."""
        return any(re.fullmatch(r"(.*-)?(g|c)\+\+(-\d+)?", Path(word).name) for word in self.compiler)

    @property
    def identity(self) -> str:
        """What a library depends on except sources, flags, ONNX Runtime's headers and torch. The same on each machine
        with the same programs, whatever their folders."""
        words = [*(Path(word).name if Path(word).is_absolute() else word for word in self.compiler)]
        words += [self.compiler_identity, *self.settings]
        return f"compiler {' '.join(words)}\n"


def find_toolchain(environ: Mapping[str, str]) -> Toolchain:
    """Return the toolchain for these environment variables. Raises ToolchainError."""
    compiler = find_compiler(environ)
    linker = next((name for name in LINKERS if shutil.which(f"ld.{name}", path=environ.get("PATH"))), None)
    include, version = find_torch()
    programs = cache_folder(environ) / "compilers"
    return Toolchain(
        compiler=compiler,
        compiler_identity=digest(compiler, linker=linker, environ=environ, cache=programs),
        settings=tuple(f"{name}={environ[name]}" for name in OBEYED if environ.get(name)),
        linker=linker,
        ninja=find_ninja(environ),
        torch_include=include,
        torch_version=version,
    )


def find_compiler(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the command of the C++ compiler. Raises ToolchainError."""
    path = environ.get("PATH", "")
    try:
        asked = shlex.split(environ.get("CXX", ""))
    except ValueError as error:
        raise ToolchainError(f"CXX is {environ['CXX']!r}, which is not a command: {error}. Set CXX to a C++ compiler, "
                             "or unset it to have g++ or clang++ found.") from error  # fmt: skip
    if asked:
        if found := shutil.which(asked[0], path=path):
            return (found, *asked[1:])
        raise ToolchainError(
            f"CXX is {environ['CXX']!r}, and {asked[0]!r} is not a program on PATH {path!r}. Set CXX to a C++ "
            "compiler, or unset it to have g++ or clang++ found."
        )
    for name in COMPILERS:
        if found := shutil.which(name, path=path):
            return (found,)
    raise ToolchainError(
        f"no C++ compiler (g++ or clang++) on PATH {path!r}. Install one (Debian: apt install g++), or set CXX to "
        "its path."
    )


def find_ninja(environ: Mapping[str, str]) -> str:
    """Return ninja's path. Raises ToolchainError."""
    path = environ.get("PATH", "")
    if asked := environ.get("NINJA"):
        if ninja := shutil.which(asked, path=path):
            return ninja
        raise ToolchainError(f"NINJA is {asked!r}, which is not a program. Set it to ninja's path, or unset it.")
    # Look in the environment's bin folder first: a step may run without it on PATH.
    if ninja := shutil.which("ninja", path=str(Path(sys.executable).parent)) or shutil.which("ninja", path=path):
        return ninja
    raise ToolchainError(f"ninja not found on PATH {path!r}. Install it, or set NINJA to its path.")


def find_objcopy(environ: Mapping[str, str]) -> str:
    """Return objcopy's path. Raises ToolchainError."""
    path = environ.get("PATH", "")
    if objcopy := shutil.which("objcopy", path=path):
        return objcopy
    raise ToolchainError(
        f"objcopy not found on PATH {path!r}; an operator with cpu_levels=True needs it. Install it (Debian: "
        "apt install binutils), or remove cpu_levels from spec.py."
    )


def find_torch() -> tuple[Path, str]:
    """Return torch's folder of headers and its version. Raises ToolchainError."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError(
            f"torch is not installed for {sys.executable}; in a checkout of opmatrix use `./run doit`, else "
            "pip install torch --index-url https://download.pytorch.org/whl/cpu"
        )
    version = metadata.version("torch")
    include = Path(spec.submodule_search_locations[0]) / "include"
    if not (include / TORCH_SHIM).is_file():
        raise ToolchainError(f"torch {version} has no header '{include / TORCH_SHIM}'. Reinstall torch.")
    if older(version, OLDEST_TORCH):
        raise ToolchainError(f"torch {version} is older than 2.9, where its stable ABI begins. Install a newer one.")
    return include, version
