"""From a request to drafts, and to what is said of them once they are written."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.declaration.placeholders import MARK, marked_lines
from opmatrix.errors import ToolchainError, UsageError
from opmatrix.project.paths import Paths
from opmatrix.scaffold import from_aten, from_onnx, from_torch_schema, render_files, write
from opmatrix.scaffold.draft import Draft
from opmatrix.scaffold.prompt import EXAMPLE, Request

_OWN = ("ai.onnx", "com.microsoft", "com.ms.internal")
_GIVE = (
    f"give --schema '{EXAMPLE}' --domain my.domain, or --override aten::name --domain my.domain, or --from-onnx "
    f"model.onnx; in a terminal, `doit new` alone asks"
)


def check(request: Request) -> None:
    """Raise UsageError for options that are missing, or do not go together."""
    if not (request.schema or request.override or request.from_onnx):
        raise UsageError(f"nothing says what the operator is: {_GIVE}")
    if request.override and (request.schema or request.from_onnx):
        other = "--schema" if request.schema else "--from-onnx"
        raise UsageError(f"--override takes the schema that the installed torch has: leave out {other}")
    if request.from_onnx and request.domain:
        raise UsageError(f"--domain {request.domain}: the model says the domain; leave it out")
    if not request.from_onnx and not request.domain:
        raise UsageError("--domain is missing: the ONNX domain that the operator's node is in, such as my.domain")
    for own in _OWN:
        if request.domain == own or request.domain.startswith(f"{own}."):
            whose = "ONNX" if own == "ai.onnx" else "ONNX Runtime"
            raise UsageError(
                f"--domain {request.domain}: it is {whose}'s own, and an operator there would take the place of one of "
                f"theirs in silence; write one that you own, such as my.domain"
            )


def check_answer(request: Request) -> None:
    """Raise UsageError for what of an incomplete request cannot be."""
    check(request)
    if request.schema:
        _from_schema(request)


def _from_schema(request: Request) -> Draft:
    return from_torch_schema.from_schema(
        request.schema, domain=request.domain, name=request.name, op_type=request.op_type
    )


def drafts(layout: Paths, request: Request) -> tuple[Draft, ...]:
    """Return the operators that a request asks for. Raises UsageError for what cannot be declared."""
    check(request)
    if request.override:
        name = request.override if "::" in request.override else f"aten::{request.override}"
        found = _child("aten_process", name, cwd=layout.root)
        return (from_aten.from_aten(found, name, domain=request.domain, name=request.name, op_type=request.op_type),)
    if request.from_onnx:
        return _from_onnx(layout, request)
    return (_from_schema(request),)


def _from_onnx(layout: Paths, request: Request) -> tuple[Draft, ...]:
    path = Path(request.from_onnx)
    if not path.is_file():
        raise UsageError(f"--from-onnx {request.from_onnx}: no such file")
    found = _child("onnx_process", str(path.resolve()), cwd=layout.root)
    nodes = from_onnx.by_operator(found, path.name, op_type=request.op_type)
    operators = {f"{o.spec.onnx.domain}::{o.spec.onnx.op_type}": o.name for o in write.known(layout)}
    declared = {node: name for node, name in operators.items() if node in nodes}
    new = {k: v for k, v in nodes.items() if k not in declared}
    if not new:
        known = ", ".join(f"{k} in ops/{v}/" for k, v in declared.items())
        raise UsageError(f"{path.name}: every node that ONNX Runtime does not know is declared already: {known}")
    one = len(new) == 1
    if (request.schema or request.name) and not one:
        option = "--schema" if request.schema else "--name"
        raise UsageError(f"{path.name} has {len(new)} unknown operators, and {option} is for one: choose it with "
                         f"--op-type, of {', '.join(new)}")  # fmt: skip
    if request.schema:
        ((_, of_one),) = new.items()
        return (from_onnx.from_nodes_and_schema(of_one, request.schema, shown=path.name, name=request.name),)
    return tuple(from_onnx.from_nodes(of_one, shown=path.name, name=request.name) for of_one in new.values())


def _child(module: str, argument: str, *, cwd: Path) -> Mapping[str, Any]:
    """Return what a child process that imports a framework has found. Raises ToolchainError where it fails."""
    command = [sys.executable, "-m", f"opmatrix.scaffold.{module}", argument]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ToolchainError(f"{' '.join(command)} failed: {last}")
    found: Mapping[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def said(drafts: Sequence[Draft], files: Mapping[str, str], *, run: str) -> Iterator[str]:
    """Yield what a person is told once the files are written."""
    width = max(map(len, files))
    for path, text in files.items():
        lines = marked_lines(text)
        where = f"{MARK} in {len(lines)} line{'s' * (len(lines) > 1)}, the first is {lines[0]}" if lines else ""
        yield f"wrote {path:{width}}  {where}".rstrip()
    for draft in drafts:
        name = draft.spec.name
        yield from (f"{name}: note: {note}" for note in draft.notes)
        yield f"{name}: {_state(draft)}"
    folders = " ".join(f"ops/{d.spec.name} native/{d.spec.name}" for d in drafts)
    yield f"next: {run}"
    if any(marked_lines(text) for text in files.values()):
        yield f"then: grep -rn '{MARK}' {folders}"


def _state(draft: Draft) -> str:
    if draft.copies:
        return f"green as it stands, and a placeholder: {render_files.placeholder(draft)}"
    if draft.formula:
        return f"green as it stands: {draft.aten} is known, {draft.formula.cpp} of each value"
    return (
        f"not green yet: compile and export are; the rest fails until ops/{draft.spec.name}/reference.py "
        f"is filled in. Torch computes {draft.aten} itself, so a placeholder would be a wrong answer"
    )
