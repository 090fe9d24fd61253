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
    Room(name="program", holds="python -m opmatrix", modules=("__main__",)),
    Room(name="addons", holds="check, mutate, bench, team, hf_kernel", modules=(
        "addons", "addons.check", "addons.mutate", "addons.bench", "addons.team", "addons.hf_kernel")),
    Room(name="bench", holds="the words of ops/<name>/bench.py"),
    Room(name="commands", holds="what a person types, and the table of stages"),
    Room(name="ort_checks", holds="sessions, verify, fuzz and sanitize in ONNX Runtime"),
    Room(name="torch_checks", holds="register: opcheck, kernel, search, gradient; compat"),
    Room(name="engine", holds="doit extended: up-to-date, database, fork servers, reporters"),
    Room(name="export", holds="both exporters, and the gates on what they write"),
    Room(name="scaffold", holds="what doit new writes"),
    Room(name="plan", holds="the steps and their keys"),
    Room(name="wheel", holds="what a wheel contains, runs and proves"),
    Room(name="environments", holds="virtual environments: the main one and those of the matrix"),
    Room(name="torch_ops", holds="loads and calls the torch library; what each torch can do"),
    Room(name="lowering", holds="one notation for both exporters"),
    Room(name="toolchain", holds="compiler, headers, ninja file, symbol gate"),
    Room(name="report", holds="verdicts as a table, JSON, JUnit, Markdown and a page"),
    Room(name="codegen", holds="generated bindings, fake kernel, ONNX schema"),
    Room(name="judge", holds="what differs, whether it may, and how it is said"),
    Room(name="search", holds="inputs that a declaration allows, and forbids"),
    Room(name="data", holds="arrays, references, truth, data sets, comparison"),
    Room(name="declaration", holds="reads spec.py and cases.py, and finds their mistakes"),
    Room(name="sizes", holds="the language of sizes"),
    Room(name="signature", holds="the arguments of an operator in torch, ONNX and C++"),
    Room(name="shared_cache", holds="results that clones, machines and CI jobs share"),
    Room(name="records", holds="steps, verdicts, the code of a step"),
    Room(name="project", holds="paths, settings, cells, what is measured"),
    Room(name="spec", holds="the words of a declaration"),
    Room(name="basics", holds="errors, files, processes, terminal, logs"),
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
