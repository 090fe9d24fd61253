"""What a shared library shows and what it needs, read from its ELF tables, and the gate that judges it.

Format: System V ABI, "ELF-64 Object File Format"; symbol versions as in the Linux Standard Base, "Symbol Versioning".
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from pipeline.errors import CompileError

SHIMS = Path(__file__).parent / "torch_shims"

# The newest symbols that a library for many versions of a framework may need, so that it loads on older systems than
# the one that compiled it: those of glibc 2.35 and GCC 12, as Ubuntu 22.04 has them and Debian 12 has newer ones.
# https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html
CEILING: Mapping[str, tuple[int, ...]] = {"GLIBC": (2, 35), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}

_DYNAMIC, _DYNSYM, _VERSYM, _VERNEED = 6, 11, 0x6FFFFFFF, 0x6FFFFFFE  # kinds of sections
_TORCH = ("aoti_torch_", "torch_")  # how the names of its C functions begin
_NEEDED = 1  # a tag of the dynamic section
_LOCAL, _WEAK = 0, 2  # bindings of symbols


@dataclass(frozen=True, kw_only=True)
class Symbols:
    """The dynamic symbols of a library.

    `needed` are the libraries that the loader fetches with it. `undefined` are the symbols that must be found in one of
    them, but not those that carry a version: glibc's and libstdc++'s do, torch's and ONNX Runtime's do not. `weak` are
    those that need not be found, and read as null then. `versions` are the newest of those that are asked for, by what
    they are versions of: ``{"GLIBC": (2, 14)}``.
    """

    defined: frozenset[str]
    undefined: frozenset[str]
    weak: frozenset[str]
    needed: tuple[str, ...]
    versions: Mapping[str, tuple[int, ...]]


class _Symbol(NamedTuple):
    name: str
    binding: int
    section: int  # 0: not in this library
    version: int


class _Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int


def read_symbols(path: Path) -> Symbols:
    """Return the symbols of a 64-bit little-endian library. Raises CompileError for any other file."""
    defined: set[str] = set()
    undefined: set[str] = set()
    weak: set[str] = set()
    with _mapped(path) as content:
        sections = list(_sections(content))
        for symbol in _symbols(content, sections):
            if symbol.binding == _LOCAL:
                continue  # for relocations alone: gold lists hidden thread-local variables so
            if symbol.section:
                defined.add(symbol.name)
            elif symbol.version < 2:  # 0 and 1: local and global, without a version
                (weak if symbol.binding == _WEAK else undefined).add(symbol.name)
        return Symbols(
            defined=frozenset(defined),
            undefined=frozenset(undefined),
            weak=frozenset(weak),
            needed=tuple(_needed(content, sections)),
            versions=_newest(_versions(content, sections)),
        )


def needed_libraries(path: Path) -> tuple[str, ...]:
    """Return the libraries that the loader fetches with one. Cheap for a large one: it is not read as a whole."""
    with _mapped(path) as content:
        return tuple(_needed(content, list(_sections(content))))


def shows(path: Path, *beginnings: bytes) -> tuple[bool, ...]:
    """Return for each of `beginnings` whether a name in the table of a library's dynamic symbols begins with it."""
    with _mapped(path) as content:
        sections = list(_sections(content))
        names = [sections[table.link] for table in sections if table.kind == _DYNSYM]
        return tuple(any(content.find(b"\0" + b, n.offset, n.offset + n.size) >= 0 for n in names) for b in beginnings)


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    """Look at a file without reading it: libtorch_cpu.so has half a gigabyte."""
    with path.open("rb") as file:
        if file.read(6) != b"\x7fELF\x02\x01":
            raise CompileError(f"'{path}' is no 64-bit ELF library")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


def _sections(content: mmap.mmap) -> Iterator[_Section]:
    offset, size, count = struct.unpack_from("<Q", content, 40)[0], *struct.unpack_from("<HH", content, 58)
    for index in range(count):
        fields = struct.unpack_from("<IIQQQQIIQQ", content, offset + index * size)
        yield _Section(kind=fields[1], offset=fields[4], size=fields[5], link=fields[6])


def _text(content: mmap.mmap, table: _Section, at: int) -> str:
    start = table.offset + at
    return content[start : content.find(b"\0", start)].decode()


def _symbols(content: mmap.mmap, sections: list[_Section]) -> Iterator[_Symbol]:
    for table in (s for s in sections if s.kind == _DYNSYM):
        versions = next((s for s in sections if s.kind == _VERSYM), None)
        for index in range(1, table.size // 24):  # the first one is empty by definition
            name, info, _, section = struct.unpack_from("<IBBH", content, table.offset + 24 * index)
            version = struct.unpack_from("<H", content, versions.offset + 2 * index)[0] if versions else 1
            yield _Symbol(_text(content, sections[table.link], name), info >> 4, section, version & 0x7FFF)


def _needed(content: mmap.mmap, sections: list[_Section]) -> Iterator[str]:
    for table in (s for s in sections if s.kind == _DYNAMIC):
        for tag, value in struct.iter_unpack("<QQ", content[table.offset : table.offset + table.size]):
            if tag == _NEEDED:
                yield _text(content, sections[table.link], value)


def _versions(content: mmap.mmap, sections: list[_Section]) -> Iterator[str]:
    """Yield the versions of symbols that a library asks other libraries for: ``GLIBC_2.14``."""
    for table in (s for s in sections if s.kind == _VERNEED):
        of_library = table.offset
        while True:
            _, count, _, first, following = struct.unpack_from("<HHIII", content, of_library)
            entry = of_library + first
            for _ in range(count):
                _, _, _, name, following_entry = struct.unpack_from("<IHHII", content, entry)
                yield _text(content, sections[table.link], name)
                entry += following_entry
            if not following:
                break
            of_library += following


def _newest(versions: Iterator[str]) -> dict[str, tuple[int, ...]]:
    """Return the newest of each kind; GLIBC_PRIVATE and the like are no versions."""
    newest: dict[str, tuple[int, ...]] = {}
    for version in versions:
        kind, _, numbers = version.rpartition("_")
        if all(part.isdecimal() for part in numbers.split(".")):
            newest[kind] = max(newest.get(kind, ()), tuple(map(int, numbers.split("."))))
    return dict(sorted(newest.items()))


def spelled(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


@cache
def torch_shims(target: str) -> frozenset[str]:
    """Return the C functions that torch `target` ("2.9") and every newer one export; of "newer" those beyond the lowest
    target that bindings call where they are there."""
    return frozenset((SHIMS / f"{target}.txt").read_text().split())


def check_torch_library(path: Path, *, target: str) -> None:
    """Raise CompileError unless the library works in torch `target` and newer. It loads in older ones as well, to say
    what it needs: torch's functions are weak there."""
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
    _check_ceiling(path, found)


def check_classic_torch_library(path: Path) -> None:
    """Raise CompileError unless a generated binding over torch's C++ headers shows what it must alone, and asks for
    torch's libraries. That this torch has all that it needs was the linker's to say."""
    found = read_symbols(path)
    _check_exports(path, found, allowed="opmatrix_error")
    if missing := sorted({"libtorch_cpu.so", "libc10.so"} - {*found.needed}):
        raise CompileError(f"{path.name} does not ask for {_list(missing)}, so it cannot be loaded by itself")


def check_own_torch_library(path: Path) -> None:
    """Raise CompileError unless a library over torch's C++ headers shows nothing and uses torch.

    That torch has all that it needs was the linker's to say. Nothing holds that for any other version of torch.
    """
    found = read_symbols(path)
    if shown := sorted(found.defined):
        raise CompileError(f"{path.name} shows {_list(shown)}; it may show nothing. Check its version script.")
    # Not all that is undefined is torch's: libtorch_cpu has some of libstdc++'s symbols, without a version.
    if not any("torch" in name or "c10" in name for name in found.undefined):
        raise CompileError(
            f"{path.name} uses nothing of torch, so it registers no operator; torch.cc needs a TORCH_LIBRARY or "
            "torch::RegisterOperators"
        )


def check_ort_library(path: Path) -> None:
    """Raise CompileError unless the library shows RegisterCustomOps alone and knows nothing of torch."""
    found = read_symbols(path)
    _check_exports(path, found, allowed="RegisterCustomOps")
    if "OrtGetApiBase" in found.undefined:
        raise CompileError(
            f"{path.name} needs 'OrtGetApiBase', which Python's ONNX Runtime does not show. In ort.cc, define "
            "ORT_API_MANUAL_INIT before <onnxruntime_cxx_api.h>, and let RegisterCustomOps begin with "
            "Ort::InitApi(base->GetApi(ORT_API_VERSION))"
        )
    if beyond := sorted(found.undefined):
        raise CompileError(f"{path.name} needs {_list(beyond)}, which no library beside it has")
    if torch := [n for n in found.needed if n.startswith(("libtorch", "libc10"))]:
        raise CompileError(
            f"{path.name} is linked against {_list(torch)}; ONNX Runtime's library must do without torch"
        )
    _check_ceiling(path, found)


def _check_ceiling(path: Path, found: Symbols) -> None:
    """Raise CompileError where the library asks for newer symbols of the system's libraries than `CEILING` allows."""
    for kind, newest in CEILING.items():
        if (needed := found.versions.get(kind, ())) > newest:
            raise CompileError(
                f"{path.name} needs {kind}_{spelled(needed)}, newer than {kind}_{spelled(newest)}, which is the newest "
                f"that it may: an older system could not load it. See which function asks for it with "
                f"`objdump -T '{path}'`, or compile on an older system"
            )


def _check_exports(path: Path, found: Symbols, *, allowed: str) -> None:
    if found.defined == {allowed}:
        return
    if extra := sorted(found.defined - {allowed}):
        raise CompileError(
            f"{path.name} shows {_list(extra)}; it may show {allowed!r} alone. Check its version script."
        )
    raise CompileError(f'{path.name} does not show {allowed!r}, by which it is found; is it defined, and extern "C"?')


def _list(names: list[str]) -> str:
    shown = ", ".join(repr(n) for n in names[:5])
    return shown + (f" and {len(names) - 5} more" if len(names) > 5 else "")


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a library needs of a system: libraries, versions of their symbols such as ``GLIBC_2.14``, and all symbols
    that it looks for."""

    libraries: frozenset[str]
    versions: frozenset[str]
    symbols: frozenset[str]


def read_needs(path: Path) -> Needs:
    """Return what a library needs. Raises CompileError for a file that is none."""
    with _mapped(path) as content:
        sections = list(_sections(content))
        return Needs(
            libraries=frozenset(_needed(content, sections)),
            versions=frozenset(_versions(content, sections)),
            symbols=frozenset(s.name for s in _symbols(content, sections) if not s.section),
        )
