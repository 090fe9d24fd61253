"""The gates that try a mutant, the cheapest first: those of plain `doit`, then those of `doit sanitize`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.declaration.checks import Part, agreement, register_parts
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import has_ort_library, has_torch_library
from opmatrix.matrix.cells import Cell
from opmatrix.mutation.entry import STAGE
from opmatrix.project.paths import Paths
from opmatrix.spec import Lowering
from opmatrix.stages import sanitize
from opmatrix.step import Server

TORCH = "opmatrix.mutation.torch_gate:main"
RACES = "opmatrix.mutation.entry:races"
COMPILE = "compile"
# The parts of register that a file can change; of any other file all.
_PARTS: Mapping[str, Sequence[Part]] = {
    "lowering.py": ("nodes",),
    "torch_op.py": ("gradient", "schema", "kernel", "search", "nodes"),
}
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


def kernel_gates(operator: Operator, cells: Sequence[Cell]) -> list[Gate]:
    """Return the gates of C++ that a survivor of the cheap ones has passed: torch, and ONNX Runtime in one cell."""
    found = []
    if has_torch_library(operator.spec):
        found.append(Gate(name=KERNEL, entry=TORCH, words=(operator.name,), server="torch"))
    if cells and has_ort_library(operator.spec):
        found.append(_verify(operator, cells[0], name=ORT))
    return found


def survivor_gates(operator: Operator, cells: Sequence[Cell], *, stamp: str) -> Iterator[Gate]:
    """Yield the further gates of C++: the stages of `doit sanitize`, and ONNX Runtime in all other cells. Each process
    of the sanitizers is a child of a server that has their runtimes, since to start one takes seconds. `stamp`: what
    the races depend on besides the kernel."""
    if cells and has_ort_library(operator.spec):
        for words in sanitize.commands(operator, cells[0]):
            yield _sanitize(operator, words, stamp)
        yield from (_verify(operator, cell, name=CELLS, once=False) for cell in cells[1:])


def _sanitize(operator: Operator, words: Sequence[str], stamp: str) -> Gate:
    stage = words[0]
    if stage == "races":
        return Gate(name=SANITIZE, entry=RACES, words=(operator.name, stamp))
    if stage not in sanitize.UNSANITIZED:
        words = (*words, "--sanitized")
    watched = stage not in sanitize.UNWATCHED
    server: Server = "torch" if stage == "register" else "ort"
    return Gate(name=SANITIZE, words=tuple(words), server=server if watched else None, watched=watched)


def _verify(operator: Operator, cell: Cell, *, name: str, once: bool = True) -> Gate:
    skipped = () if once else ("--skip-once-checks",)
    return Gate(name=name, words=("verify", operator.name, "--cell", str(cell), *skipped), server="ort")


def first_cells(cells: Sequence[Cell]) -> list[Cell]:
    """Return the first cell of each exporter."""
    return [next(c for c in cells if c.exporter == e) for e in dict.fromkeys(c.exporter for c in cells)]


def python_gates(paths: Paths, operator: Operator, file: str, cells: Sequence[Cell]) -> Iterator[Gate]:
    """Yield the gates of a mutant in `file` of the operator's folder, such as lowering.py: with models of `cells`."""
    name = operator.name
    if file == "spec.py":
        yield from _declared(operator)
    torch = next((cell.torch for cell in cells if cell.torch), None)
    planned = register_parts(paths, operator, torch) if torch else ()
    for part in _PARTS.get(file, ("schema", "kernel", "search", "forbidden", "nodes", "gradient")):
        if part in planned:
            server: Server = "export" if part in ("schema", "nodes") else "torch"
            yield Gate(name=f"{KERNEL} {part}", words=("register", name, "--part", part), server=server)
    yield from _models(operator, file, cells)


def further_python_gates(operator: Operator, file: str, cells: Sequence[Cell]) -> Iterator[Gate]:
    """Yield the gates in all other cells, and the comparison of exports."""
    first = first_cells(cells)
    yield from _models(operator, file, [cell for cell in cells if cell not in first])
    compared = agreement(operator, cells)
    for lowering in _lowerings(operator, file) if compared else ():
        words = ("compare-exports", operator.name, "--lowering", lowering, *map(str, cells))
        yield Gate(name="compare-exports", words=words)


def _models(operator: Operator, file: str, cells: Sequence[Cell]) -> Iterator[Gate]:
    for cell in cells:
        for lowering in _lowerings(operator, file):
            where = ("--lowering", lowering, "--cell", str(cell))
            export: Server = "export" if cell.torch else "onnx"
            yield Gate(name="export", words=("export", operator.name, *where), server=export)
            yield Gate(name=ORT, words=("verify", operator.name, *where), server="ort")


def _lowerings(operator: Operator, file: str) -> Sequence[Lowering]:
    """Return the lowerings whose models a file can change: torch_op.py has the operator that "custom" exports."""
    spec = operator.spec
    return [one for one in spec.lowerings if one == "custom"] if file == "torch_op.py" else spec.lowerings


def _declared(operator: Operator) -> Iterator[Gate]:
    """Yield the steps that follow from a declaration."""
    name = operator.name
    yield Gate(name="data", words=("data", name), server="onnx")
    yield Gate(name="cases", words=("cases", name), server="onnx")
    if operator.spec.torch and not operator.spec.torch.overrides:
        yield Gate(name="draw-inputs", words=("draw-inputs", name), server="onnx")
    yield Gate(name="codegen", words=("codegen", name))
    if has_ort_library(operator.spec):
        yield Gate(name=COMPILE, words=(COMPILE, name))
