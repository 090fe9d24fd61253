"""Link libraries of several operators from the objects of their compile steps: for link-together and link-wheel.

`check_one_definition` finds two operators that define one name differently.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from opmatrix.codegen import cpp_bindings
from opmatrix.errors import CompileError
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain import elf, elf_symbols, ninja_file, ort_headers
from opmatrix.toolchain.elf import Elf, Relocation, Symbol
from opmatrix.toolchain.find_tools import find_toolchain
from opmatrix.toolchain.run_ninja import run_ninja

_REPEATED = (elf.WEAK, elf.UNIQUE)  # bindings of symbols that several objects may define
# Symbols of the standard library, which are equivalent in all objects even where their bytes differ.
_STANDARD = ("_ZNSt", "_ZSt", "_ZNKSt", "_ZTS", "_ZTI", "_ZTV", "_ZN9__gnu_cxx", "_ZNK9__gnu_cxx", "DW.ref.")


def link(layout: Paths, specs: Sequence[OpSpec], libraries: Mapping[str, Path], *, display_name: str = "") -> None:
    """Bring the libraries, ``torch`` and ``ort`` in one folder, up to date, and run the symbol gate on them.

    `specs` have kernels. Messages of the library for ONNX Runtime name it `display_name`, or list the operators.
    Raises CompileError with the message of the linker or the gate.
    """
    found = ort_headers.recorded(layout)
    toolchain, folder, names = find_toolchain(os.environ), libraries["ort"].parent, [spec.name for spec in specs]
    write_text(folder / ninja_file.IDENTITY, f"{toolchain.identity}onnxruntime {found['version']}\n")
    write_text(folder / ninja_file.HEADER_PATHS, ninja_file.headers_ninja(Path(found["path"])))
    write_text(folder / ninja_file.ORT_LIBRARY, cpp_bindings.ort_library(names, called=display_name))
    write_text(folder / "build.ninja", ninja_file.linked_ninja(layout, specs, libraries, toolchain=toolchain))
    check_one_definition({name: path for name in names for path in layout.objects(name, "kernel")})
    done = run_ninja(toolchain.ninja, folder, jobs="1")
    if done.returncode != 0:
        raise CompileError(f"{', '.join(names)} cannot be linked together:\n{done.stdout.strip()}")
    if library := libraries.get("torch"):
        elf_symbols.check_torch_library(library, target=ninja_file.TORCH_TARGET)
    elf_symbols.check_ort_library(libraries["ort"])


def check_one_definition(kernels: Mapping[str, Path]) -> None:
    """Raise CompileError if two objects, given by operator, define one name differently: the one-definition rule (ODR).

    Each has its own copy of what a header defines, and a linker silently keeps the first of each name for all.
    """
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
    """Yield the symbols of an object that others may define as well, each with a digest of its definition."""
    with elf.open_elf(path) as file:
        relocations = {table.info: [*file.relocations(table)] for table in file.of_type(elf.RELA)}
        for symbols in map(file.symbols, file.of_type(elf.SYMTAB)):
            for symbol in symbols:
                if (
                    symbol.binding in _REPEATED
                    and symbol.type in (elf.OBJECT, elf.FUNCTION)
                    and elf.UNDEFINED < symbol.section < elf.RESERVED
                    and not symbol.name.startswith(_STANDARD)
                ):
                    yield symbol.name, _digest(file, symbol, symbols, relocations.get(symbol.section, ()))


def _digest(file: Elf, symbol: Symbol, symbols: Sequence[Symbol], relocations: Iterable[Relocation]) -> str:
    """Return a digest of the bytes of a symbol and of its relocations."""
    first, end = symbol.value, symbol.value + symbol.size
    digest = hashlib.sha256(file.content(file.sections[symbol.section])[first:end])
    for found in relocations:
        if first <= found.offset < end:
            target = _target(file, symbols[found.symbol])
            digest.update(repr((found.offset - first, found.type, found.addend, target)).encode())
    return digest.hexdigest()


def _target(file: Elf, symbol: Symbol) -> object:
    """Return the target of a relocation: the name of a global symbol, or the bytes of a local one."""
    if symbol.binding != elf.LOCAL:
        return symbol.name
    if not elf.UNDEFINED < symbol.section < elf.RESERVED:
        return ""
    section = file.sections[symbol.section]
    data = file.content(section)
    if section.flags & elf.STRINGS:
        return data[symbol.value : data.find(b"\0", symbol.value)]
    return data[symbol.value : symbol.value + (symbol.size or section.entry_size)]  # a constant has an entry's size


def _demangled(name: str) -> str:
    if not (program := shutil.which("c++filt")):
        return repr(name)
    return repr(subprocess.run([program, name], capture_output=True, text=True).stdout.strip())
