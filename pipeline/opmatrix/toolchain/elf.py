"""Read sections, symbols and relocations of 64-bit little-endian ELF files. Format: elf(5).

A compile step checks its libraries with it. An import of pyelftools, which also reads debug information, takes 30 ms.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from opmatrix.errors import CompileError

# Types of sections.
SYMTAB, RELA, DYNAMIC, NOBITS, DYNSYM, VERNEED, VERSYM = 2, 4, 6, 8, 11, 0x6FFFFFFE, 0x6FFFFFFF
STRINGS = 0x20  # a flag of a section
LOCAL, WEAK, UNIQUE = 0, 2, 10  # bindings of a symbol
OBJECT, FUNCTION = 1, 2  # types of a symbol
UNDEFINED, RESERVED = 0, 0xFF00  # the section of an undefined symbol, and the first number that is no section
_NEEDED = 1  # the tag of a dynamic entry


class Section(NamedTuple):
    """An entry of the section table. `link` and `info` are numbers of other sections, depending on the type."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


class Symbol(NamedTuple):
    """A symbol, with the number of the section that it is in."""

    name: str
    binding: int
    type: int
    section: int
    value: int
    size: int


class Relocation(NamedTuple):
    """A relocation, with the number of the symbol that it refers to."""

    offset: int
    type: int
    symbol: int
    addend: int


class Elf:
    """An ELF file in memory. For a damaged table its methods raise ValueError, IndexError or struct.error."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        magic, table, size, count = struct.unpack_from("<6s34xQ10xHH", data)
        if magic != b"\x7fELF\x02\x01" or size != 64:
            raise ValueError("no 64-bit little-endian ELF file")
        entries = struct.iter_unpack("<IIQQQQIIQQ", self._part(table, 64 * count))
        self.sections = [Section(*fields) for fields in entries]

    def of_type(self, kind: int) -> list[Section]:
        return [section for section in self.sections if section.type == kind]

    def content(self, section: Section) -> bytes:
        """Return the bytes of a section: zeros, as the loader makes them, of one that is not in the file."""
        return bytes(section.size) if section.type == NOBITS else self._part(section.offset, section.size)

    def strings(self, section: Section) -> bytes:
        """Return the content of the string table that `section` refers to."""
        return self.content(self.sections[section.link])

    def symbols(self, table: Section) -> list[Symbol]:
        names = self.strings(table)
        entries = struct.iter_unpack("<IBxHQQ", self.content(table))
        return [Symbol(_text(names, name), info >> 4, info & 15, *rest) for name, info, *rest in entries]

    def relocations(self, table: Section) -> Iterator[Relocation]:
        for offset, kind, symbol, addend in struct.iter_unpack("<QIIq", self.content(table)):
            yield Relocation(offset, kind, symbol, addend)

    def needed(self) -> Iterator[str]:
        """Yield the libraries that the loader loads with this one."""
        for section in self.of_type(DYNAMIC):
            names = self.strings(section)
            entries = struct.iter_unpack("<qQ", self.content(section))
            yield from (_text(names, value) for tag, value in entries if tag == _NEEDED)

    def needed_versions(self) -> Iterator[str]:
        """Yield the symbol versions that the library needs, such as GLIBC_2.14."""
        for section in self.of_type(VERNEED):
            names, content, at = self.strings(section), self.content(section), 0
            for _ in range(section.info):
                count, first, following = struct.unpack_from("<2xH4xII", content, at)
                version = at + first
                for _ in range(count):
                    name, next_version = struct.unpack_from("<8xII", content, version)
                    yield _text(names, name)
                    version += next_version
                at += following

    def _part(self, offset: int, size: int) -> bytes:
        if offset + size > len(self._data):
            raise ValueError("the file ends too early")
        return self._data[offset : offset + size]


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()


@contextmanager
def open_elf(path: Path) -> Iterator[Elf]:
    """Open a library or an object; reads only the tables that are asked for. Raises CompileError for any other file."""
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                yield Elf(data)
        except (ValueError, IndexError, struct.error) as error:
            raise CompileError(f"'{path}' is no 64-bit ELF library") from error
