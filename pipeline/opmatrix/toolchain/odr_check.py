"""The gate before objects of several operators are linked together: nothing that two of them define differently.

What a header defines (templates, inline functions and variables) every object has for itself, and a linker keeps the
first one of each name, silently. In libraries of their own two kernels may have a helper of one name; in one library
one would compute with the helper of the other.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opmatrix.errors import CompileError
from opmatrix.toolchain.elf_symbols import open_elf

# Symbols that may be defined more than once; pyelftools calls GNU's STB_GNU_UNIQUE by its number, STB_LOOS.
_REPEATED = ("STB_WEAK", "STB_LOOS")
_STRINGS = 0x20  # a flag of sections, SHF_STRINGS
# The standard library's are the same for all, whatever the compiler has made of them in each place.
_STANDARD = ("_ZNSt", "_ZSt", "_ZNKSt", "_ZTS", "_ZTI", "_ZTV", "_ZN9__gnu_cxx", "_ZNK9__gnu_cxx", "DW.ref.")


def check_one_definition(kernels: Mapping[str, Path]) -> None:
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
    with open_elf(path) as elf:
        relocations = {section["sh_info"]: section for section in elf.iter_sections("SHT_RELA")}
        for table in elf.iter_sections("SHT_SYMTAB"):
            for symbol in table.iter_symbols():
                info, place = symbol["st_info"], symbol["st_shndx"]
                if (
                    info["bind"] in _REPEATED
                    and info["type"] in ("STT_OBJECT", "STT_FUNC")
                    and isinstance(place, int)  # else undefined, or in no section
                    and not symbol.name.startswith(_STANDARD)
                ):
                    yield symbol.name, _digest(elf, table, symbol, relocations.get(place))


def _digest(elf: Any, table: Any, symbol: Any, relocations: Any) -> str:
    """Return a fingerprint of the bytes of a symbol, and of what they refer to."""
    first, end = symbol["st_value"], symbol["st_value"] + symbol["st_size"]
    digest = hashlib.sha256(elf.get_section(symbol["st_shndx"]).data()[first:end])
    for reference in relocations.iter_relocations() if relocations else ():
        if first <= (offset := reference["r_offset"]) < end:
            target = _target(elf, table.get_symbol(reference["r_info_sym"]))
            digest.update(repr((offset - first, reference["r_info_type"], reference["r_addend"], target)).encode())
    return digest.hexdigest()


def _target(elf: Any, symbol: Any) -> object:
    """Return what a reference leads to: a name that all objects know, or what a name of this object alone holds."""
    place, value = symbol["st_shndx"], symbol["st_value"]
    if symbol["st_info"]["bind"] != "STB_LOCAL":
        return symbol.name
    if not isinstance(place, int):
        return ""
    section = elf.get_section(place)
    data = section.data()
    if section["sh_flags"] & _STRINGS:
        return data[value : data.find(b"\0", value)]
    return data[value : value + (symbol["st_size"] or section["sh_entsize"])]  # a constant has the size of an entry


def _demangled(name: str) -> str:
    if not (program := shutil.which("c++filt")):
        return repr(name)
    return repr(subprocess.run([program, name], capture_output=True, text=True).stdout.strip())
