"""The plan of the last command, kept. To plan costs a command 80 ms, and little of what a plan follows from changes.

A plan follows from the text of the declarations, cases and settings, from which other files there are, from the code
of this package, and from what is installed, third parties' headers that are declared among it. What the steps read is
no part of it: an edited kernel keeps the plan.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from opmatrix.engine.file_hashes import Mark, mark, settled
from opmatrix.files import write_bytes
from opmatrix.matrix.cells import MADE, Choice
from opmatrix.project.paths import Paths
from opmatrix.project.settings import Versions, installed, lost_headers, with_environment
from opmatrix.step import Step
from opmatrix.toolchain.find_tools import Toolchain, find_toolchain
from opmatrix.version import minor
from opmatrix.wheel.git_commit import commit

# The files of an operator whose text matters; of all others only that they are there.
_DECLARING = ("spec.py", "cases.py", "lowering.py", "schema.json")
Declared = tuple[str, str | None]  # a folder, and the distribution that it is of
_PACKAGE = str(Path(__file__).parents[1])


def load_or_plan(layout: Paths, *, choice: Choice, environ: Mapping[str, str]) -> Sequence[Step]:
    """Return the steps of a project, planned anew if need be. Raises OpmatrixError for a mistake in what it is of."""
    looked, versions, toolchain = time.time_ns(), installed(), find_toolchain(environ)
    choice = choice.normalized(torch=minor(versions.torch), ort=minor(versions.onnxruntime))
    path = layout.plan(str(choice))
    marks = _marks(layout)
    key = (
        str(layout.root),
        choice,
        astuple(versions),
        astuple(toolchain),
        environ.get("OPMATRIX_ORT_INCLUDE"),
        lost_headers(layout),
        with_environment(layout, versions=versions) if MADE in vars(choice).values() else None,
        commit(layout.root),
        marks,
    )
    with suppress(Exception):  # whatever is wrong with the file: it is only a cache
        known, headers, kept = pickle.loads(path.read_bytes())
        if known == key and headers == _headers(layout, headers):
            return [Step(**step) for step in kept]
    steps, declared = _plan(layout, choice=choice, environ=environ, versions=versions, toolchain=toolchain)
    if all(settled(found, looked) for found in marks.values() if found):
        with suppress(OSError):  # a checkout that cannot be written is planned anew each time
            kept = [vars(step) for step in steps]
            write_bytes(path, pickle.dumps((key, _headers(layout, declared), kept), protocol=5))
    return steps


def _plan(
    layout: Paths, *, choice: Choice, environ: Mapping[str, str], versions: Versions, toolchain: Toolchain
) -> tuple[Sequence[Step], Sequence[Declared]]:
    """Return the steps, and which headers of third parties are declared."""
    # Here, because these imports are a part of what a kept plan saves.
    from opmatrix.declaration.load import load_operators
    from opmatrix.plan.steps import Plan, steps
    from opmatrix.project.settings import chosen_cells, step_megabytes, step_seconds
    from opmatrix.wheel import settings

    operators = load_operators(layout)
    plan = Plan(
        layout=layout,
        operators=operators,
        cells=chosen_cells(layout, choice, versions=versions),
        versions=versions,
        toolchain=toolchain,
        environ=environ,
        choice=choice,
        dist=settings.read(layout, operators),
        seconds=step_seconds(layout),
        megabytes=step_megabytes(layout),
    )
    return tuple(steps(plan)), [(h.folder, h.distribution) for o in operators for h in o.spec.headers]


def _headers(layout: Paths, declared: Iterable[Declared]) -> dict[Declared, object]:
    """Return what is found now of the headers that are declared; most projects declare none."""
    if not declared:
        return {}
    from opmatrix.toolchain.third_party_headers import state  # here, as above

    return {(folder, distribution): state(layout.root, folder, distribution) for folder, distribution in declared}


def _marks(layout: Paths) -> dict[str, Mark | None]:
    """Return every file that a plan may follow from, with its mark where its text matters."""
    code = {path: mark(path) for path in _files(_PACKAGE, links=False)}  # of a checkout, native/ is one
    ops = {path: mark(path) if path.endswith(_DECLARING) else None for path in _files(str(layout.ops))}
    native = dict.fromkeys(_files(str(layout.native)))
    pins = {path: None for folder in dict.fromkeys(layout.requirements) for path in _files(str(folder))}
    settings = str(layout.root / "pyproject.toml")
    return {settings: mark(settings), **code, **ops, **native, **pins}


def _files(folder: str, *, links: bool = True) -> Iterator[str]:
    """Yield all files below `folder`; folders that are `links` may be left out."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not entry.is_dir():
                    yield entry.path
                elif entry.name != "__pycache__" and (links or not entry.is_symlink()):
                    yield from _files(entry.path, links=links)
    except FileNotFoundError:
        return
