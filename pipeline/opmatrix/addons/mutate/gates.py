"""The gates that try a mutant, the cheapest first: those of plain `doit`, then those of `doit sanitize`; and what the
child of a server calls for one: another function, in a shadow, with a limit of CPU time."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opmatrix.basics.errors import OpmatrixError, print_error
from opmatrix.declaration.checks import Part, agreement, draws, register_parts
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.engine.fork_server import Entry, find_function
from opmatrix.ort_checks import sanitize
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import code_hash
from opmatrix.records.step import Server
from opmatrix.signature.signature import has_ort_library, has_torch_library
from opmatrix.spec import Lowering

STAGE = "opmatrix.commands.stages:main"


def main(arguments: Sequence[str]) -> int:
    """Call a function. Arguments: the shadow's root, CPU seconds, the function's name, its own arguments.

    A process that exceeds its CPU seconds dies of SIGXCPU. The limit is of each process, so it also holds for those
    that the gate starts.
    """
    root, seconds, name, *words = arguments
    os.chdir(root)
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 1))
    entry: Entry = find_function(name)
    return entry(words)


def races(arguments: Sequence[str]) -> int:
    """Run the stage `races` on a mutant. Arguments: the operator, and the stamp of all but its kernel."""
    from opmatrix.ort_checks import races as stage  # here, because it imports NumPy, which few children need

    name, stamp = arguments
    paths = Paths(Path.cwd())
    try:
        stage.run(paths, load_operator(paths, name, checked=True), stamp=stamp)
    except OpmatrixError as error:
        print_error(error)
        return error.exit_code
    return 0


TORCH = "opmatrix.addons.mutate.torch_gate:main"
RACES = "opmatrix.addons.mutate.gates:races"
COMPILE = "compile"
# Names of gates, as the score shows them.
KERNEL, ORT, CELLS, SANITIZE = "register", "verify", "verify in all cells", "sanitize"


@dataclass(frozen=True, kw_only=True)
class Gate:
    """One process that tries a mutant: the function `entry` with `words`, in a child of `server` (None: the light one),
    with the sanitizers' runtimes if `watched`. `unless` is a file that another gate writes: where it is equal to that
    of the build, this gate has passed, as doit does not repeat a step whose inputs are equal."""

    name: str
    words: tuple[str, ...]
    entry: str = STAGE
    server: Server | None = None
    watched: bool = False
    unless: str = ""


def kernel_gates(operator: Operator, cells: Sequence[Cell]) -> list[Gate]:
    """Return the gates of C++ that a survivor of the cheap ones has passed: torch, and ONNX Runtime in one cell."""
    gates = []
    if has_torch_library(operator.spec):
        gates.append(Gate(name=KERNEL, entry=TORCH, words=(operator.name,), server="torch"))
    if cells and has_ort_library(operator.spec):
        gates.append(_verify(operator, cells[0], name=ORT))
    return gates


def survivor_gates(operator: Operator, cells: Sequence[Cell], *, stamp: str) -> Iterator[Gate]:
    """Yield the further gates of C++: the stages of `doit sanitize`, and ONNX Runtime in all other cells. Each process
    of the sanitizers is a child of a server that has their runtimes, since to start one takes seconds. `stamp`: what
    the races depend on besides the kernel."""
    if cells and has_ort_library(operator.spec):
        for stage, *words in sanitize.commands(operator, cells[0]):
            if stage == "races":
                yield Gate(name=SANITIZE, entry=RACES, words=(operator.name, stamp))
                continue
            sanitized = () if stage in sanitize.UNSANITIZED else ("--sanitized",)
            watched = stage not in sanitize.UNWATCHED
            server: Server | None = None if not watched else "torch" if stage == "register" else "ort"
            yield Gate(name=SANITIZE, words=(stage, *words, *sanitized), server=server, watched=watched)
        yield from (_verify(operator, cell, name=CELLS, once=False) for cell in cells[1:])


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
    for part in _parts(paths, operator, file):
        if part in planned:
            server: Server = "export" if part in ("schema", "nodes") else "torch"
            yield Gate(name=f"{KERNEL} {part}", words=("register", name, "--part", part), server=server)
    yield from _models(paths, operator, file, cells)


def _parts(paths: Paths, operator: Operator, file: str) -> Sequence[Part]:
    """Return the parts of register that a file can change, of spec.py all: those that its edit runs again."""
    if file == "lowering.py":
        return ("nodes",) if "custom" in _lowerings(paths, operator, file) else ()
    if file == "torch_op.py":
        if operator.spec.torch and operator.spec.torch.python:
            return ("gradient", "schema", "kernel", "search", "nodes")
        return ("gradient", "schema", "nodes")
    return ("schema", "kernel", "search", "forbidden", "nodes", "gradient")


def further_python_gates(paths: Paths, operator: Operator, file: str, cells: Sequence[Cell]) -> Iterator[Gate]:
    """Yield the gates in all other cells, and the comparison of exports."""
    first = first_cells(cells)
    yield from _models(paths, operator, file, [cell for cell in cells if cell not in first])
    compared = agreement(operator, cells)
    for lowering in _lowerings(paths, operator, file) if compared else ():
        words = ("compare-exports", operator.name, "--lowering", lowering, *map(str, cells))
        yield Gate(name="compare-exports", words=words)


def _models(paths: Paths, operator: Operator, file: str, cells: Sequence[Cell]) -> Iterator[Gate]:
    name = operator.name
    for cell in cells:
        for lowering in _lowerings(paths, operator, file):
            where = ("--lowering", lowering, "--cell", str(cell))
            exported = paths.manifest(name, lowering, cell).relative_to(paths.root).as_posix()
            unless = "" if file == "spec.py" else exported
            yield Gate(name="export", words=("export", name, *where), server="export" if cell.torch else "onnx")
            yield Gate(name=ORT, words=("verify", name, *where), server="ort", unless=unless)


def kept_lowerings(paths: Paths, operator: Operator) -> list[Lowering]:
    """Return the lowerings whose models no change of lowering.py changes."""
    changed = _lowerings(paths, operator, "lowering.py")
    return [one for one in operator.spec.lowerings if one not in changed]


def _lowerings(paths: Paths, operator: Operator, file: str) -> Sequence[Lowering]:
    """Return the lowerings whose models a file can change: torch_op.py only where it defines the operator, which
    "custom" exports, and lowering.py the functions that are in it."""
    spec, path = operator.spec, paths.lowering(operator.name)
    if file == "torch_op.py":
        return [one for one in spec.lowerings if one == "custom" and spec.torch and spec.torch.python]
    if file == "lowering.py":
        return [one for one in spec.lowerings if code_hash.function(path, one, others=())]
    return spec.lowerings


def _declared(operator: Operator) -> Iterator[Gate]:
    name = operator.name
    yield Gate(name="data", words=("data", name), server="onnx")
    yield Gate(name="cases", words=("cases", name), server="onnx")
    if draws(operator.spec):
        yield Gate(name="draw-inputs", words=("draw-inputs", name), server="onnx")
    yield Gate(name="codegen", words=("codegen", name))
    if has_ort_library(operator.spec):
        yield Gate(name=COMPILE, words=(COMPILE, name))
