"""The gates that try a mutant, the cheapest first: those of plain `doit`, then those of `doit sanitize`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from opmatrix.declaration.checks import register_parts
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_TORCH, has_ort_library, has_torch_library, is_own
from opmatrix.matrix.cells import Cell
from opmatrix.mutation.entry import STAGE
from opmatrix.project.paths import Paths
from opmatrix.stages import sanitize
from opmatrix.step import Server

TORCH = "opmatrix.mutation.torch_gate:main"
COMPILE = "compile"
SEARCH = "search"
# Names of gates, as the score shows them.
KERNEL, ORT, CELLS, SANITIZE = "register", "verify", "verify in all cells", "sanitize"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One process that tries a mutant: the function `entry` with `words`, in a child of `server` (None: the light one),
    with the sanitizers' runtimes if `watched`."""

    name: str
    words: tuple[str, ...]
    entry: str = STAGE
    server: Server | None = None
    watched: bool = False


def compiling(operator: Operator) -> Gate:
    return Gate(name=COMPILE, words=("compile", operator.name))


def kernel_gates(operator: Operator, cells: Sequence[Cell]) -> list[Gate]:
    """Return the gates of C++ that a survivor of the cheap ones has passed: torch, and ONNX Runtime in one cell."""
    found = []
    if has_torch_library(operator.spec):
        found.append(Gate(name=KERNEL, entry=TORCH, words=(operator.name,), server="torch"))
    if cells and has_ort_library(operator.spec):
        found.append(_verify(operator, cells[0], name=ORT))
    return found


def survivor_gates(operator: Operator, cells: Sequence[Cell]) -> Iterator[Gate]:
    """Yield the further gates of C++: the stages of `doit sanitize`, and ONNX Runtime in all other cells. Each process
    of the sanitizers is a child of a server that has their runtimes, since to start one takes seconds."""
    if cells and has_ort_library(operator.spec):
        for words in sanitize.commands(operator, cells[0]):
            yield from _watched(operator, words)
        yield from (_verify(operator, cell, name=CELLS, once=False) for cell in cells[1:])


def _watched(operator: Operator, words: Sequence[str]) -> Iterator[Gate]:
    stage = words[0]
    if stage not in sanitize.UNSANITIZED:
        words = (*words, "--sanitized")
    server: Server | None = {"register": "torch", "verify": "ort", "ort-fuzz": "ort"}.get(stage)  # type: ignore[assignment]  # str
    yield Gate(name=SANITIZE, words=tuple(words), server=server, watched=stage not in sanitize.UNWATCHED)


def _verify(operator: Operator, cell: Cell, *, name: str, once: bool = True) -> Gate:
    skipped = () if once else ("--skip-once-checks",)
    return Gate(name=name, words=("verify", operator.name, "--cell", str(cell), *skipped), server="ort")


def python_gates(paths: Paths, operator: Operator, file: str, cells: Sequence[Cell]) -> Iterator[Gate]:
    """Yield the gates of a mutant in `file` of the operator's folder, such as lowering.py: one cell of each exporter
    first, then all others."""
    name, lowerings = operator.name, operator.spec.lowerings
    if file == "spec.py":
        yield from _declared(operator)
    torches = [cell.torch for cell in cells if cell.torch]
    for torch in torches[:1]:
        parts = register_parts(paths, operator, torch)
        asked = {"lowering.py": ("nodes",), "torch_op.py": ("gradient", "schema", "kernel", "search", "nodes")}
        for part in asked.get(file, parts):
            if part in parts:
                server: Server = "torch" if part in ("kernel", "search", "forbidden", "gradient") else "export"
                yield Gate(name=f"{KERNEL} {part}", words=("register", name, "--part", part), server=server)
    first = [next(c for c in cells if c.exporter == e) for e in dict.fromkeys(c.exporter for c in cells)]
    exported = [*first, *(cell for cell in cells if cell not in first)]
    for cell in exported:
        for lowering in lowerings if file != "torch_op.py" else lowerings[:1]:
            where = ("--lowering", lowering, "--cell", str(cell))
            export: Server = "export" if cell.torch else "onnx"
            yield Gate(name="export", words=("export", name, *where), server=export)
            yield Gate(name=ORT, words=("verify", name, *where), server="ort")
    for lowering in lowerings if torches and file != "torch_op.py" else ():
        words = ("compare-exports", name, "--lowering", lowering, *map(str, cells))
        yield Gate(name="export agreement", words=words)


def _declared(operator: Operator) -> Iterator[Gate]:
    """Yield the steps that follow from a declaration."""
    name = operator.name
    yield Gate(name="codegen", words=("codegen", name))
    if has_ort_library(operator.spec):
        yield Gate(name=COMPILE, words=("compile", name))
    yield Gate(name="data", words=("data", name), server="onnx")
    yield Gate(name="cases", words=("cases", name), server="onnx")
    if operator.spec.torch and not operator.spec.torch.overrides:
        yield Gate(name="draw-inputs", words=("draw-inputs", name), server="onnx")


def watches_bindings(operator: Operator) -> bool:
    """Return whether the sanitizers also make forbidden calls in torch: a handwritten binding decides for itself."""
    return not is_own(OWN_TORCH, operator.spec, operator.handwritten_files)
