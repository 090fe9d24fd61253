"""Link libraries of several operators from the objects of their compile steps: for link-together and link-wheel."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import CompileError
from opmatrix.basics.files import write_text
from opmatrix.codegen import bindings
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain import ninja_file, ort_headers, symbols
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ninja_file import run_ninja

# Bindings of symbols that several objects may define; pyelftools calls GNU's STB_GNU_UNIQUE STB_LOOS.
_REPEATED = ("STB_WEAK", "STB_LOOS")
_STRINGS = 0x20  # the section flag SHF_STRINGS
# Symbols of the standard library, which are equivalent in all objects even where their bytes differ.
_STANDARD = ("_ZNSt", "_ZSt", "_ZNKSt", "_ZTS", "_ZTI", "_ZTV", "_ZN9__gnu_cxx", "_ZNK9__gnu_cxx", "DW.ref.")


def link(paths: Paths, specs: Sequence[OpSpec], libraries: Mapping[str, Path], *, display_name: str = "") -> None:
    """Bring the libraries, ``torch`` and ``ort`` in one folder, up to date, and run the symbol gate on them.

    `specs` have kernels. Messages of the library for ONNX Runtime name it `display_name`, or list the operators.
    Raises CompileError with the message of the linker or the gate.
    """
    found = ort_headers.find_headers(os.environ)
    toolchain, folder, names = find_toolchain(os.environ), libraries["ort"].parent, [spec.name for spec in specs]
    write_text(folder / ninja_file.IDENTITY, f"{toolchain.identity}onnxruntime {found.identity}\n")
    write_text(folder / ninja_file.PLACES, ninja_file.places_ninja(paths, toolchain, found.path))
    write_text(folder / ninja_file.ORT_LIBRARY, bindings.ort_library(names, called=display_name))
    write_text(folder / "build.ninja", ninja_file.linked_ninja(paths, specs, libraries, toolchain=toolchain))
    check_one_definition({name: path for name in names for path in paths.objects(name, "kernel")})
    done = run_ninja(toolchain.ninja, folder, jobs="1")
    if done.returncode != 0:
        raise CompileError(f"{', '.join(names)} cannot be linked together:\n{done.stdout.strip()}")
    if library := libraries.get("torch"):
        symbols.check_torch_library(library, target=ninja_file.TORCH_TARGET)
    symbols.check_ort_library(libraries["ort"])


def check_one_definition(kernels: Mapping[str, Path]) -> None:
    """Raise CompileError if two objects, given by operator, define one name differently: the one-definition rule (ODR).

    Each has its own copy of what a header defines, and a linker silently keeps the first of each name for all.
    """
    first: dict[str, tuple[str, str]] = {}
    for operator, path in kernels.items():
        for name, digest in _shared(path):
            other, known = first.setdefault(name, (operator, digest))
            if known != digest:
                shown = name
                if program := shutil.which("c++filt"):
                    shown = subprocess.run([program, name], capture_output=True, text=True).stdout.strip()
                raise CompileError(
                    f"native/{other}/ and native/{operator}/ both define {shown!r}, and not the same: linked "
                    "together, both would use one of them. Give one another name, or put it where its operator alone "
                    f"looks: namespace opmatrix::{operator}"
                )


def _shared(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the symbols of an object that others may define as well, each with a digest of its definition."""
    with symbols.open_elf(path) as elf:
        relocations = {table["sh_info"]: table for table in elf.iter_sections("SHT_RELA")}
        for table in elf.iter_sections("SHT_SYMTAB"):
            for symbol in table.iter_symbols():
                info, section = symbol["st_info"], symbol["st_shndx"]
                if (
                    info["bind"] in _REPEATED
                    and info["type"] in ("STT_OBJECT", "STT_FUNC")
                    and isinstance(section, int)  # else undefined, or in no section
                    and not symbol.name.startswith(_STANDARD)
                ):
                    yield symbol.name, _digest(elf, table, symbol, relocations.get(section))


def _digest(elf: Any, table: Any, symbol: Any, relocations: Any) -> str:
    """Return a digest of the bytes of a symbol and of its relocations."""
    first, end = symbol["st_value"], symbol["st_value"] + symbol["st_size"]
    digest = hashlib.sha256(elf.get_section(symbol["st_shndx"]).data()[first:end])
    for reference in relocations.iter_relocations() if relocations else ():
        if first <= (offset := reference["r_offset"]) < end:
            target = _target(elf, table.get_symbol(reference["r_info_sym"]))
            digest.update(repr((offset - first, reference["r_info_type"], reference["r_addend"], target)).encode())
    return digest.hexdigest()


def _target(elf: Any, symbol: Any) -> object:
    """Return the target of a relocation: the name of a global symbol, or the bytes of a local one."""
    index, value = symbol["st_shndx"], symbol["st_value"]
    if symbol["st_info"]["bind"] != "STB_LOCAL":
        return symbol.name
    if not isinstance(index, int):
        return ""
    section = elf.get_section(index)
    data = section.data()
    if section["sh_flags"] & _STRINGS:
        return data[value : data.find(b"\0", value)]
    return data[value : value + (symbol["st_size"] or section["sh_entsize"])]  # a constant has the size of an entry
