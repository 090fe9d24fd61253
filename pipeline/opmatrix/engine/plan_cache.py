"""Cache the plan, the steps of a project, between commands: planning takes 80 ms of each command.

A plan depends on the content of declarations, cases and settings, on the names of the other files, on the code of this
package, on the headers of ONNX Runtime, and on what is installed, declared third-party headers included. It does not
depend on the content of other inputs of steps: an edited kernel keeps the plan.

The file is JSON and not a pickle: every doit command reads it, and reading a pickle can run any code. Its first line
is a digest of what the plan depends on and of the rest of the file, so a damaged plan is made anew.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from opmatrix.basics.files import Mark, files_below, mark, settled, write_bytes
from opmatrix.basics.version import minor
from opmatrix.project.cells import MADE, Cell, Choice
from opmatrix.project.measured import use_rows
from opmatrix.project.paths import Paths
from opmatrix.project.settings import Versions, installed, with_environment
from opmatrix.records.step import CheckKey, Step
from opmatrix.toolchain import ort_headers
from opmatrix.toolchain.find import Toolchain, find_toolchain
from opmatrix.wheel.sources import commit

# The files of an operator on whose content the plan depends; of other files it depends on the names only.
_DECLARATION_FILES = ("spec.py", "cases.py", "lowering.py", "schema.json")
Headers = tuple[str, str | None]  # an include folder and the distribution that has it
_PACKAGE = str(Path(__file__).parents[1])
_DEFAULTS = {field.name: field.default for field in fields(Step)}


def load_or_plan(paths: Paths, *, choice: Choice, environ: Mapping[str, str]) -> Sequence[Step]:
    """Return the steps of a project, from the cache if it is valid. Raises OpmatrixError for an invalid project."""
    read_at, versions, toolchain = time.time_ns(), installed(), find_toolchain(environ)
    use_rows(paths, versions)
    choice = choice.normalized(torch=minor(versions.torch), ort=minor(versions.onnxruntime))
    path = paths.plan(str(choice))
    marks = _marks(paths) | {str(file): mark(str(file)) for file in ort_headers.files(ort_headers.folder(environ))}
    key = repr((
        str(paths.root),
        choice,
        astuple(versions),
        astuple(toolchain),
        environ.get(ort_headers.SETTING),
        with_environment(paths, versions=versions) if MADE in vars(choice).values() else None,
        commit(paths.root),
        marks,
    ))  # fmt: skip
    with suppress(OSError):  # there is none, or it cannot be read
        digest, _, content = path.read_bytes().partition(b"\n")
        if digest == _digest(key, content):
            cached = json.loads(content)
            known = [(folder, distribution) for folder, distribution in cached["declared"]]
            if cached["headers"] == repr(_headers(paths, known)):
                return [_from_json(step) for step in cached["steps"]]
    steps, declared = _plan(paths, choice=choice, environ=environ, versions=versions, toolchain=toolchain)
    # An operator may fail for a reason outside the key, such as a module elsewhere that it imports or a busy machine.
    failed = any(step.group == "declaration" for step in steps)
    if not failed and all(settled(found, read_at) for found in marks.values() if found):
        with suppress(OSError):  # a checkout that is not writable has no cache
            headers = repr(_headers(paths, declared))
            cached = {"declared": declared, "headers": headers, "steps": [*map(_as_json, steps)]}
            content = json.dumps(cached, separators=(",", ":")).encode()
            write_bytes(path, _digest(key, content) + b"\n" + content)
    return steps


def _digest(key: str, content: bytes) -> bytes:
    return hashlib.sha256(key.encode() + content).hexdigest().encode()


def _as_json(step: Step) -> dict[str, Any]:
    stored = {name: value for name, value in vars(step).items() if value != _DEFAULTS[name]}
    return stored | {"cell": vars(step.cell)} if step.cell else stored


def _from_json(stored: dict[str, Any]) -> Step:
    for name, value in stored.items():
        if name == "check":
            stored[name] = CheckKey(*value)
        elif name == "cell":
            stored[name] = Cell(**value)
        elif isinstance(value, list):
            stored[name] = tuple(value)
    return Step(**stored)


def _plan(
    paths: Paths, *, choice: Choice, environ: Mapping[str, str], versions: Versions, toolchain: Toolchain
) -> tuple[Sequence[Step], Sequence[Headers]]:
    # Imported here: a cached plan saves the time of these imports too.
    from opmatrix.declaration.isolated import start_reading

    reading = start_reading(paths)  # on another core, while this process imports the rest
    from opmatrix.plan.keys import Plan
    from opmatrix.plan.steps import steps
    from opmatrix.project.settings import chosen_cells, step_limits
    from opmatrix.wheel import settings

    declared = reading()
    operators = declared.operators
    plan = Plan(
        paths=paths,
        operators=operators,
        failed=declared.failed,
        cells=chosen_cells(paths, choice, versions=versions),
        versions=versions,
        toolchain=toolchain,
        environ=environ,
        choice=choice,
        dist=None if settings.unusable(paths, declared.failed) else settings.read(paths, operators),
        limits=step_limits(paths),
    )
    return tuple(steps(plan)), [(h.folder, h.distribution) for o in operators for h in o.spec.headers]


def _headers(paths: Paths, declared: Iterable[Headers]) -> dict[Headers, object]:
    """Return the state of the declared headers as installed now. Most projects declare none."""
    if not declared:
        return {}
    from opmatrix.toolchain.headers import state  # imported here as in _plan

    return {(folder, distribution): state(paths.root, folder, distribution) for folder, distribution in declared}


def _marks(paths: Paths) -> dict[str, Mark | None]:
    """Return every file that a plan may depend on, with its mark if the content matters."""
    code = {path: mark(path) for path in files_below(_PACKAGE)}
    ops = {path: mark(path) if path.endswith(_DECLARATION_FILES) else None for path in files_below(str(paths.ops))}
    native = dict.fromkeys(files_below(str(paths.native)))
    pins = {path: None for folder in dict.fromkeys(paths.requirements) for path in files_below(str(folder))}
    settings = str(paths.root / "pyproject.toml")
    return {settings: mark(settings), **code, **ops, **native, **pins}
