"""The rooms of the package from top to bottom, their descriptions and picture: `./run python -m docs.site.rooms`.

A room imports only rooms below it in ROOMS; tests/test_architecture.py checks that. The picture at the top of
docs/architecture.md, docs/rooms.svg, shows the actual imports.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.site.imports import Arrow, Package, cycles, reduced
from docs.site.layered import Box, render

ROOT = Path(__file__).parents[2]
PICTURE = Path("docs/rooms.svg")
COMMAND = "./run python -m docs.site.rooms"


@dataclass(frozen=True, kw_only=True)
class Room:
    """One box of the picture: a folder, or with `modules` some modules at the top of the package."""

    name: str
    holds: str
    modules: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[str, ...]:
        return self.modules or (self.name,)


ROOMS = (
    Room(name="cli", holds="runs a stage by hand: python -m opmatrix STAGE", modules=("__main__", "cli")),
    Room(name="commands", holds="what a person types: run, why, list, new, check, clean, help"),
    Room(name="cluster", holds="steps on workers of other machines, by dask.distributed"),
    Room(name="doctor", holds="what doit doctor checks of a machine and a project"),
    Room(name="mutation", holds="mutants of kernels and formulas, and which gate finds each"),
    Room(name="stages", holds="one program per stage: files in, files out"),
    Room(name="bench", holds="what doit bench times, and its statistics"),
    Room(name="model_check", holds="what doit check does to a model"),
    Room(name="ort_checks", holds="ONNX Runtime sessions, reference evaluator, judgement of cases"),
    Room(name="torch_checks", holds="opcheck, gradcheck, property test, kernel check"),
    Room(name="engine", holds="doit extended: up-to-date, database, fork servers, reporters"),
    Room(name="wheel_runtime", holds="what a built wheel runs"),
    Room(name="export", holds="both exporters, and the gates on what they write"),
    Room(name="plan", holds="the steps and their keys"),
    Room(name="environments", holds="virtual environments: the main one and those of the matrix"),
    Room(name="torch_library", holds="loads and calls the torch library; what each torch can do"),
    Room(name="scaffold", holds="what doit new writes"),
    Room(name="operator_pages", holds="a page about each operator"),
    Room(name="lowering", holds="one notation for both exporters"),
    Room(name="wheel", holds="what a wheel contains, and how it is packed"),
    Room(name="toolchain", holds="compiler, headers, ninja file, symbol gate"),
    Room(name="codegen", holds="generated bindings, fake kernel, ONNX schema"),
    Room(name="testdata", holds="data sets, NumPy reference, comparison"),
    Room(name="declaration", holds="all that follows from an OpSpec, and its validation"),
    Room(name="report", holds="verdicts as a table, JSON, JUnit, Markdown and a page"),
    Room(name="shared_cache", holds="results that clones, machines and CI jobs share"),
    Room(name="project", holds="paths and settings of a project"),
    Room(name="records", holds="step, verdict, code_hash", modules=("step", "verdict", "code_hash")),
    Room(name="matrix", holds="cells, and which of them are legal"),
    Room(
        name="values",
        holds="spec, errors, files, processes, step_log, version, CPU levels",
        modules=("spec", "errors", "files", "interrupts", "processes", "step_log", "progress", "terminal_text",
                 "version", "cpu_levels", "utf8", "judging_code", "dict_versions", "running_hooks"),
    ),
)  # fmt: skip


def faults(package: Package, rooms: Sequence[Room] = ROOMS) -> Iterator[str]:
    """Yield what breaks the order: an import upwards, a cycle, a room without a row, a row without a room."""
    height = {member: len(rooms) - number for number, room in enumerate(rooms) for member in room.members}
    yield from (f"{name} has no row in ROOMS of docs/site/rooms.py" for name in sorted(package.rooms - height.keys()))
    yield from (f"ROOMS of docs/site/rooms.py has {name!r}, and the package does not" for name in height
                if name not in package.rooms)  # fmt: skip
    arrows = package.arrows()
    for (importing, imported), lines in arrows.items():
        if importing in height and imported in height and height[importing] < height[imported]:
            yield f"{importing} imports {imported}, which is above it: {'; '.join(lines)}"
    for cycle in cycles(arrows.keys()):
        yield f"a cycle: {', '.join(cycle)} import each other"


def picture(package: Package, rooms: Sequence[Room] = ROOMS) -> str:
    """Return the SVG. Raises ValueError with all faults: an order with faults cannot be drawn."""
    if found := list(faults(package, rooms)):
        raise ValueError("\n".join(found))
    drawn = {member: room.name for room in rooms for member in room.members}
    arrows: set[Arrow] = {(drawn[a], drawn[b]) for a, b in package.arrows() if drawn[a] != drawn[b]}
    title = f"The rooms of {package.name}: each imports only what is below it"
    return render(title, [Box(name=room.name, text=room.holds) for room in rooms], reduced(arrows), made_by=COMMAND)


def main() -> int:
    try:
        text = picture(Package.in_folder(ROOT))
    except ValueError as error:
        sys.exit(f"rooms.py: {error}")
    path = ROOT / PICTURE
    if not path.is_file() or path.read_text() != text:
        path.write_text(text)
        print(PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
