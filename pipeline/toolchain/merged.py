"""The gate before objects of several operators are linked together: nothing that two of them define differently.

What a header defines (templates, inline functions and variables) every object has for itself, and a linker keeps the
first one of each name, silently. In libraries of their own two kernels may have a helper of one name; in one library
one would compute with the helper of the other. Format: System V ABI, "ELF-64 Object File Format".
"""

from __future__ import annotations

import hashlib
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import CompileError

_SYMTAB, _RELA, _NOBITS = 2, 4, 8  # kinds of sections
_LOCAL = 0  # a binding of symbols
_WEAK, _UNIQUE = 2, 10  # those of symbols that may be defined more than once
_STRINGS = 0x20  # a flag of sections
_OBJECT, _FUNCTION = 1, 2  # types of symbols
_RESERVED = 0xFF00  # section numbers from here on mean something else
# The standard library's are the same for all, whatever the compiler has made of them in each place.
_STANDARD = ("_ZNSt", "_ZSt", "_ZNKSt", "_ZTS", "_ZTI", "_ZTV", "_ZN9__gnu_cxx", "_ZNK9__gnu_cxx", "DW.ref.")


@dataclass(frozen=True, kw_only=True)
class _Object:
    content: bytes
    sections: tuple[tuple[int, ...], ...]  # name, kind, flags, address, offset, size, link, info, alignment, entry

    def data(self, index: int) -> bytes:
        _, kind, _, _, offset, size, *_ = self.sections[index]
        return b"" if kind == _NOBITS else self.content[offset : offset + size]

    def text(self, table: int, at: int) -> str:
        data = self.data(table)
        return data[at : data.index(b"\0", at)].decode()


def check_merged(kernels: Mapping[str, Path]) -> None:
    """Raise CompileError where two of the objects, by their operators, define something of one name differently."""
    first: dict[str, tuple[str, str]] = {}
    for operator, path in kernels.items():
        for name, digest in _shared(path):
            other, known = first.setdefault(name, (operator, digest))
            if known != digest:
                raise CompileError(
                    f"native/{other}/ and native/{operator}/ both define {_demangled(name)}, and not the same: linked "
                    "together, both would use one of them. Give one another name, or put it where its operator alone "
                    f"looks: namespace opmatrix::{operator}"
                )


def _shared(path: Path) -> Iterator[tuple[str, str]]:
    """Yield what an object defines and others may define as well, each with a fingerprint of what it is."""
    found = _read(path)
    for index, section in enumerate(found.sections):
        if section[1] == _SYMTAB:
            for name, info, _, place, value, size in struct.iter_unpack("<IBBHQQ", found.data(index)):
                binding, kind = info >> 4, info & 15
                if binding in (_WEAK, _UNIQUE) and kind in (_OBJECT, _FUNCTION) and 0 < place < _RESERVED:
                    spelled = found.text(section[6], name)
                    if not spelled.startswith(_STANDARD):
                        yield spelled, _digest(found, place, value, size)


def _read(path: Path) -> _Object:
    content = path.read_bytes()
    offset, size, count = struct.unpack_from("<Q", content, 40)[0], *struct.unpack_from("<HH", content, 58)
    sections = (struct.unpack_from("<IIQQQQIIQQ", content, offset + n * size) for n in range(count))
    return _Object(content=content, sections=tuple(sections))


def _digest(found: _Object, place: int, value: int, size: int) -> str:
    """Return a fingerprint of the bytes of a symbol, and of what they refer to."""
    digest = hashlib.sha256(found.data(place)[value : value + size])
    for index, section in enumerate(found.sections):
        if section[1] != _RELA or section[7] != place:
            continue
        for offset, info, addend in struct.iter_unpack("<QQq", found.data(index)):
            if value <= offset < value + size:
                target = _target(found, section[6], info >> 32)
                digest.update(repr((offset - value, info & 0xFFFFFFFF, addend, target)).encode())
    return digest.hexdigest()


def _target(found: _Object, table: int, number: int) -> object:
    """Return what a reference leads to: a name that all objects know, or what a name of this object alone holds."""
    name, info, _, place, value, size = struct.unpack_from("<IBBHQQ", found.data(table), number * 24)
    if info >> 4 != _LOCAL:
        return found.text(found.sections[table][6], name)
    if place >= _RESERVED:
        return ""
    data, (_, _, flags, *_, entry) = found.data(place), found.sections[place]
    if flags & _STRINGS:
        return data[value : data.find(b"\0", value)]
    return data[value : value + (size or entry)]  # a constant has the size of an entry of its section


def _demangled(name: str) -> str:
    if not (program := shutil.which("c++filt")):
        return repr(name)
    return repr(subprocess.run([program, name], capture_output=True, text=True).stdout.strip())
