"""The options of `doit new`, their check, and the questions that ask for missing ones in a terminal.

Turn the options of `doit new` into drafts, and summarize what was written.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import ToolchainError, UsageError, many, printable
from opmatrix.declaration.source_files import MARK, marked_lines
from opmatrix.project.paths import Paths
from opmatrix.scaffold import from_aten, from_onnx, render
from opmatrix.scaffold.draft import Draft, domain_owner, unused
from opmatrix.scaffold.from_onnx import Node
from opmatrix.scaffold.from_torch_schema import from_schema

EXAMPLE = "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor"
_GIVE = (
    f"give --schema '{EXAMPLE}' --domain my.domain, or --override aten::name --domain my.domain, or --from-onnx "
    f"model.onnx; in a terminal, `doit new` alone asks"
)
INTRODUCTION = "A new operator. Enter takes the value in brackets; Ctrl-C stops, and nothing is written."


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `doit new`; "" means not given."""

    schema: str = ""
    domain: str = ""
    name: str = ""
    op_type: str = ""
    override: str = ""
    from_onnx: str = ""

    def draft(self) -> Draft:
        """Return the operator with this schema."""
        return from_schema(self.schema, domain=self.domain, name=self.name, op_type=self.op_type)


def check(request: Request) -> None:
    """Raise UsageError for options that are missing or do not go together."""
    if not (request.schema or request.override or request.from_onnx):
        raise UsageError(f"describe the operator: {_GIVE}")
    if request.override and (request.schema or request.from_onnx):
        other = "--schema" if request.schema else "--from-onnx"
        raise UsageError(f"--override takes the schema that the installed torch has: leave out {other}")
    if request.from_onnx and request.domain:
        raise UsageError(f"--domain {request.domain}: the domain is in the model; leave it out")
    if not request.from_onnx and not request.domain:
        raise UsageError("--domain is missing: the ONNX domain that the operator's node is in, such as my.domain")
    if request.domain and (owner := domain_owner(request.domain)):
        raise UsageError(
            f"--domain {request.domain}: it is {owner}'s own, and an operator there would take the place of one of "
            f"theirs in silence; write one that you own, such as my.domain"
        )


def complete(request: Request) -> Request:
    """Ask for missing options, again if invalid. Ctrl-C raises KeyboardInterrupt, the end of input EOFError."""
    asked = not (request.schema or request.override or request.from_onnx)
    if asked:
        print(INTRODUCTION)
        schema = _ask("torch schema", f"such as {EXAMPLE}", default="", check=_names)
        request = replace(request, schema=schema)
    if request.from_onnx:
        return request
    if not request.domain:
        default = "" if request.override else _names(request.schema)[0]
        request = _ask_field(request, "domain", "ONNX domain", default)
    if asked and not request.name:
        request = _ask_field(request, "name", "name of its folder and its kernel", _names(request.schema)[1])
    if asked and not request.op_type:
        request = _ask_field(request, "op_type", "name of its node in ONNX", request.draft().spec.onnx.op_type)
    return request


def _ask_field(request: Request, field: str, question: str, default: str) -> Request:
    def check_answer(answer: str) -> None:
        changed = replace(request, **{field: answer})
        check(changed)
        if changed.schema:
            changed.draft()

    return replace(request, **{field: _ask(question, "", default=default, check=check_answer)})


def _names(schema: str) -> tuple[str, str]:
    """Return the default domain and name of an operator: the namespace and the name in its schema."""
    spec = from_schema(schema, domain="any.domain").spec
    assert spec.torch is not None
    return spec.torch.name.partition("::")[0], spec.name


def _ask(question: str, hint: str, *, default: str, check: Callable[[str], object]) -> str:
    if hint:
        print(f"{question}, {hint}")
    while True:
        answer = input("> " if hint else f"{question} [{default}]: " if default else f"{question}: ").strip() or default
        try:
            if not answer:
                raise UsageError(f"the {question} is needed")
            check(answer)
        except UsageError as error:
            print(printable(str(error)))
        else:
            return answer


def drafts(paths: Paths, request: Request) -> tuple[Draft, ...]:
    """Return the requested operators. Raises UsageError if one cannot be declared."""
    check(request)
    if request.override:
        name = request.override if "::" in request.override else f"aten::{request.override}"
        found = _run_process("aten_process", name, cwd=paths.root)
        return (from_aten.from_aten(found, name, domain=request.domain, name=request.name, op_type=request.op_type),)
    if request.from_onnx:
        return _from_onnx(paths, request)
    return (request.draft(),)


def _from_onnx(paths: Paths, request: Request) -> tuple[Draft, ...]:
    path = Path(request.from_onnx)
    try:
        there = path.is_file()
    except OSError:  # a name that is too long
        there = False
    if not there:
        raise UsageError(f"--from-onnx {request.from_onnx}: no such file")
    found = _run_process("onnx_process", str(path.resolve()), cwd=paths.root)
    nodes = from_onnx.by_operator(found, path.name, op_type=request.op_type)
    operators = {f"{o.spec.onnx.domain}::{o.spec.onnx.op_type}": o.name for o in render.loadable_operators(paths)}
    declared = {node: name for node, name in operators.items() if node in nodes}
    new = {k: v for k, v in nodes.items() if k not in declared}
    if not new:
        known = ", ".join(f"{k} in ops/{v}/" for k, v in declared.items())
        raise UsageError(f"{path.name}: every node that ONNX Runtime does not know is declared already: {known}")
    if (request.schema or request.name) and len(new) > 1:
        option = "--schema" if request.schema else "--name"
        raise UsageError(f"{path.name} has {len(new)} unknown operators, and {option} is for one: choose it with "
                         f"--op-type, of {', '.join(new)}")  # fmt: skip
    if request.schema:
        (nodes_of_one,) = new.values()
        return (from_onnx.from_nodes_and_schema(nodes_of_one, request.schema, shown=path.name, name=request.name),)
    return tuple(each(new, path.name, request.name))


def each(nodes: Mapping[str, Sequence[Node]], shown: str, name: str) -> Iterator[Draft]:
    """Yield an operator for each type of node, each with a folder of its own, also where their names are alike."""
    owners: dict[str, str] = {}
    for qualified, of_one in nodes.items():
        draft = from_onnx.from_nodes(of_one, shown=shown, name=name)
        if (wanted := draft.spec.name) in owners:
            draft = from_onnx.from_nodes(of_one, shown=shown, name=unused(wanted, owners))
            note = f"{qualified} is in ops/{draft.spec.name}/, because ops/{wanted}/ is that of {owners[wanted]}"
            draft = replace(draft, notes=(*draft.notes, note))
        owners[draft.spec.name] = qualified
        yield draft


def _run_process(module: str, argument: str, *, cwd: Path) -> Mapping[str, Any]:
    """Run a module that imports a framework and return the JSON that it prints. Raises ToolchainError if it fails."""
    command = [sys.executable, "-m", f"opmatrix.scaffold.{module}", argument]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise ToolchainError(f"{' '.join(command)} failed: {last}")
    found: Mapping[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return found


def summary(drafts: Sequence[Draft], files: Mapping[str, str], *, run: str) -> Iterator[str]:
    """Yield the lines to print after `files` are written; `run` is the command that builds them."""
    width = max(map(len, files))
    for path, text in files.items():
        lines = marked_lines(text)
        where = f"{many(len(lines), MARK)} (first: line {lines[0]})" if lines else ""
        yield f"wrote {path:{width}}  {where}".rstrip()
    for draft in drafts:
        name = draft.spec.name
        yield from (f"{name}: note: {note}" for note in draft.notes)
        yield f"{name}: {_state(draft)}"
    folders = " ".join(f"ops/{d.spec.name} native/{d.spec.name}" for d in drafts)
    yield f"next: {run}"
    if any(marked_lines(text) for text in files.values()):
        yield f"then: grep -rn {MARK} {folders}"


def _state(draft: Draft) -> str:
    if not draft.aten:
        return f"passes all gates as a placeholder: {render.placeholder(draft)}"
    return (
        f"passes only compile and export until you write ops/{draft.spec.name}/reference.py. "
        f"Torch computes {draft.aten} itself, so a placeholder would be a wrong answer"
    )
