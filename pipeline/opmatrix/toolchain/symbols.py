"""The symbols that a library exports and needs, and the symbol gate, which compile and link run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import CompileError
from opmatrix.basics.files import digests_by_path, write_text
from opmatrix.basics.version import numbers

SHIMS = Path(__file__).parent / "torch_shims"

# The newest symbol versions that a library for many versions of a framework may need, so that it loads on systems older
# than the one that compiled it: those of glibc 2.35 and GCC 12, which Ubuntu 22.04 has. Debian 12 has newer ones.
# https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
NEWEST_SYMBOL_VERSIONS: Mapping[str, tuple[int, ...]] = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}

# Sets the level of the kernels' instructions: every library that has a kernel.h may show it.
LEVEL = "opmatrix_cpu_level"

_TORCH = ("aoti_torch_", "torch_")  # prefixes of its C functions


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """The dynamic symbols of a library.

    `needed` are the libraries that the loader loads with it. `undefined` symbols must be in one of them; `weak` ones
    may be missing, and are null then. `versioned` are the undefined symbols with a version, which neither of these
    holds: glibc's and libstdc++'s have one, torch's and ONNX Runtime's do not. `versions` are theirs: ``GLIBC_2.14``.
    """

    defined: frozenset[str]
    undefined: frozenset[str]
    weak: frozenset[str]
    versioned: frozenset[str]
    needed: tuple[str, ...]
    versions: frozenset[str]


def read_symbols(path: Path) -> Symbols:
    """Return the symbols of a library. Raises CompileError for any other file."""
    found: dict[str, set[str]] = {"defined": set(), "undefined": set(), "weak": set(), "versioned": set()}
    with open_elf(path) as elf:
        versions = {a.name for s in elf.iter_sections("SHT_GNU_verneed") for _, of in s.iter_versions() for a in of}
        of_symbols = next((memoryview(s.data()).cast("H") for s in elf.iter_sections("SHT_GNU_versym")), None)
        for table in elf.iter_sections("SHT_DYNSYM"):
            for index, symbol in enumerate(table.iter_symbols()):
                binding = symbol["st_info"]["bind"]
                if binding == "STB_LOCAL":
                    continue  # gold lists hidden thread-local variables, for relocations only
                if symbol["st_shndx"] != "SHN_UNDEF":
                    kind = "defined"
                elif of_symbols and of_symbols[index] & 0x7FFF > 1:  # 0 and 1: local and global, no version
                    kind = "versioned"
                else:
                    kind = "weak" if binding == "STB_WEAK" else "undefined"
                found[kind].add(symbol.name)
        needed = tuple(_needed(elf))
    return Symbols(**{k: frozenset(names) for k, names in found.items()}, needed=needed, versions=frozenset(versions))


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Return the libraries that the loader loads with `path`. Reads little of a large file."""
    with open_elf(path) as elf:
        return tuple(_needed(elf))


def has_symbol_prefix(path: Path, *prefixes: bytes) -> tuple[bool, ...]:
    """Return for each prefix whether a dynamic symbol of the library, defined or not, begins with it."""
    with open_elf(path) as elf:
        names = b"".join(table.stringtable.data() for table in elf.iter_sections("SHT_DYNSYM"))
    return tuple(b"\0" + prefix in names for prefix in prefixes)


@contextmanager
def open_elf(path: Path) -> Iterator[Any]:
    """Open a 64-bit little-endian ELF file as pyelftools' ELFFile. Raises CompileError for any other file.

    The result is Any because pyelftools types each section as the base class Section.
    """
    # Imported here because it takes 40 ms, and every run of doit imports this module.
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as file:
        try:
            elf = ELFFile(file)
            if elf.elfclass != 64 or not elf.little_endian:
                raise ELFError("of another machine")
            yield elf
        except ELFError as error:
            raise CompileError(f"'{path}' is no 64-bit ELF library") from error


def _needed(elf: Any) -> Iterator[str]:
    for section in elf.iter_sections("SHT_DYNAMIC"):
        yield from (tag.needed for tag in section.iter_tags("DT_NEEDED"))


def newest_versions(versions: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Return the newest version of each kind, ``{"GLIBC": (2, 14)}``, without names such as GLIBC_PRIVATE."""
    found: dict[str, tuple[int, ...]] = {}
    for version in versions:
        if numbered := re.fullmatch(r"([A-Z]+)_([\d.]+)", version):
            kind, text = numbered.groups()
            found[kind] = max(found.get(kind, ()), numbers(text))
    return dict(sorted(found.items()))


def version_text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


@cache
def torch_shims(target: str) -> frozenset[str]:
    """Return the C functions of torch `target` ("2.9") and newer; bindings call those of "newer" where they exist."""
    return frozenset((SHIMS / f"{target}.txt").read_text(encoding="utf-8").split())


def check_torch_library(path: Path, *, target: str) -> None:
    """Raise CompileError unless it works in torch `target` and newer. Weak symbols let older ones load and report."""
    found = read_symbols(path)
    _check_exports(path, found, allowed="opmatrix_error")
    if beyond := sorted(found.undefined - torch_shims(target)):
        raise CompileError(
            f"{path.name} needs {_list(beyond)}, which torch {target} does not export. Use what native/binding/torch.h "
            "offers; declare a newer function [[gnu::weak]] there, and guard its use."
        )
    functions = {name for name in found.weak if name.startswith(_TORCH)}
    if unknown := sorted(functions - torch_shims(target) - torch_shims("newer")):
        raise CompileError(
            f"{path.name} uses {_list(unknown)}, which torch {target} does not export, and may find null instead. Call "
            f"it only where it is there, then add it to {SHIMS.name}/newer.txt"
        )
    if "libtorch_cpu.so" not in found.needed:
        raise CompileError(f"{path.name} does not ask for libtorch_cpu.so, so it cannot be loaded; link the stub")
    _check_symbol_versions(path, found)


def check_cpp_abi_library(path: Path) -> None:
    """Raise CompileError unless a generated binding over the C++ ABI exports only opmatrix_error and needs torch's
    libraries. The linker has checked that this torch has every symbol that it needs."""
    found = read_symbols(path)
    _check_exports(path, found, allowed="opmatrix_error")
    if missing := sorted({"libtorch_cpu.so", "libc10.so"} - {*found.needed}):
        raise CompileError(f"{path.name} does not ask for {_list(missing)}, so it cannot be loaded by itself")


def check_handwritten_torch_library(path: Path) -> None:
    """Raise CompileError unless the library of a handwritten binding exports nothing and uses torch.

    The linker has checked that the installed torch has every symbol that it needs; another version may lack some.
    """
    found = read_symbols(path)
    if shown := sorted(found.defined - {LEVEL}):
        raise CompileError(f"{path.name} shows {_list(shown)}; it may show nothing. Check its version script.")
    # An undefined symbol may be libstdc++'s: libtorch_cpu has some of those, without a version.
    if not any("torch" in name or "c10" in name for name in found.undefined):
        raise CompileError(
            f"{path.name} uses nothing of torch, so it registers no operator; torch.cc needs a TORCH_LIBRARY or "
            "torch::RegisterOperators"
        )


def check_ort_library(path: Path) -> None:
    """Raise CompileError unless the library exports only RegisterCustomOps and needs nothing of torch."""
    found = read_symbols(path)
    _check_exports(path, found, allowed="RegisterCustomOps")
    if "OrtGetApiBase" in found.undefined:
        raise CompileError(
            f"{path.name} needs 'OrtGetApiBase', which Python's ONNX Runtime does not show. In ort.cc, define "
            "ORT_API_MANUAL_INIT before <onnxruntime_cxx_api.h>, and let RegisterCustomOps begin with "
            "Ort::InitApi(base->GetApi(ORT_API_VERSION))"
        )
    if beyond := sorted(found.undefined):
        raise CompileError(f"{path.name} needs {_list(beyond)}, which no library next to it has")
    if torch := [n for n in found.needed if n.startswith(("libtorch", "libc10"))]:
        raise CompileError(
            f"{path.name} is linked against {_list(torch)}; ONNX Runtime's library must do without torch"
        )
    _check_symbol_versions(path, found)


def _check_symbol_versions(path: Path, symbols: Symbols) -> None:
    """Raise CompileError if the library needs a symbol version newer than NEWEST_SYMBOL_VERSIONS."""
    asked = newest_versions(symbols.versions)
    for kind, newest in NEWEST_SYMBOL_VERSIONS.items():
        if (needed := asked.get(kind, ())) > newest:
            raise CompileError(
                f"{path.name} needs {kind}_{version_text(needed)}, newer than {kind}_{version_text(newest)}, which is "
                f"the newest that it may: an older system could not load it. See which function asks for it with "
                f"`objdump -T '{path}'`, or compile on an older system"
            )


def _check_exports(path: Path, symbols: Symbols, *, allowed: str) -> None:
    if symbols.defined - {LEVEL} == {allowed}:
        return
    if extra := sorted(symbols.defined - {allowed, LEVEL}):
        raise CompileError(
            f"{path.name} shows {_list(extra)}; it may show {allowed!r} alone. Check its version script."
        )
    raise CompileError(f'{path.name} does not show {allowed!r}, by which it is found; is it defined, and extern "C"?')


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def write(into: Path, root: Path, *, objects: Iterable[Path], libraries: Iterable[Path]) -> None:
    """Write the digest of each file by its path in the project `root`; `opmatrix.wheel.pack` compares them."""
    found = {"objects": digests_by_path(objects, root), "libraries": digests_by_path(libraries, root)}
    write_text(into, json.dumps(found, indent=1) + "\n")
