"""What the HTML page shows with a verdict: the end of its log, its models as graph drawings, and links to its files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opmatrix.errors import without_colours
from opmatrix.matrix.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.report.read_cache import ReadCache
from opmatrix.verdict import Verdict

_BYTES = 4096  # of the end of a log: a crash may leave pages
_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Background:
    """The last lines of a log, and `opmatrix.export.graph_json.graph_json` of each model by name."""

    log: str = ""
    pictures: Mapping[str, Any] = field(default_factory=dict)


def read(cache: ReadCache, found: Verdict) -> Background:
    """Return the drawings, and the log of a cell that is not verified. Where an earlier step failed, return the log of
    that step: the log of verify belongs to an earlier run, and so do the drawings where the export failed."""
    blocked, layout = found.blocked_by, cache.layout
    log = ""
    if found.outcome != "verified":
        log = _end(layout.log(f"{blocked.group}:{blocked.name}" if blocked else f"verify:{found}"))
    if blocked and blocked.group == "export":
        return Background(log=log)
    return Background(log=log, pictures=_pictures(cache, layout.graph_drawings(found.op, found.lowering, found.cell)))


def links(layout: Paths) -> Mapping[str, str]:
    """Return the addresses of files of a cell, from the folder of the report on, with a field ``{name}`` for each part.
    `export` is the part of a cell that names its export."""
    cell = Cell(torch=None, exporter="node", opset=0, ort="")
    model = layout.model("{op}", "{lowering}", cell, "{model}")
    folder = model.parent.parent.with_name("{export}")
    paths = {
        "log": layout.log("verify:{name}"),
        "model": folder / model.relative_to(model.parent.parent),
        "data": layout.data("{op}", "{model}", 0).parent,
    }
    start = layout.report_data.parent
    return {name: os.path.relpath(path, start) for name, path in paths.items()}


def _end(path: Path) -> str:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _BYTES))
            lines = without_colours(file.read().decode(errors="replace")).splitlines()
    except FileNotFoundError:
        return ""
    complete = lines[1:] if size > _BYTES else lines  # the first line may be cut
    return "\n".join(complete[-_LINES:])


def _pictures(cache: ReadCache, path: Path) -> Mapping[str, Any]:
    try:
        found = cache.drawings(path)
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
