"""The options of `doit new`: check them, ask for missing ones in a terminal, turn them into drafts, and summarize what
was written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import ToolchainError, UsageError, many, printable
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.source_files import MARK, marked_lines
from opmatrix.project.paths import Paths
from opmatrix.scaffold import from_onnx, render
from opmatrix.scaffold.draft import (
    SHAPE,
    SUMMARY,
    USUAL_DTYPES,
    Draft,
    domain_owner,
    finished,
    is_reserved,
    op_type_of,
    shape_rule,
    snake_case,
    unused,
)
from opmatrix.scaffold.from_onnx import Node
from opmatrix.scaffold.from_torch_schema import KINDS, TENSORS, from_schema, parts, refused_results, why_no_type
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter, Schema
from opmatrix.spec import AttributeKind, AttributeValue, FromKernel, OnnxOp, OpSpec, Output, Override, TorchOp

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
        return (from_aten(found, name, domain=request.domain, name=request.name, op_type=request.op_type),)
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
    operators = {f"{o.spec.onnx.domain}::{o.spec.onnx.op_type}": o.name for o in read_operators(paths).operators}
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
    printed: Mapping[str, Any] = json.loads(done.stdout.strip().rpartition("\n")[2])
    return printed


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
        if not draft.aten:
            yield f"{name}: passes all gates as a placeholder: {render.placeholder(draft)}"
        else:
            yield f"{name}: passes only compile and export until you write ops/{name}/reference.py. Torch computes " \
                f"{draft.aten} itself, so a placeholder would be a wrong answer"  # fmt: skip
    folders = " ".join(f"ops/{d.spec.name} native/{d.spec.name}" for d in drafts)
    yield f"next: {run}"
    if any(marked_lines(text) for text in files.values()):
        yield f"then: grep -rn {MARK} {folders}"


# The attribute kinds of ATen's types; `_attribute_kind` handles Scalar, whose default shows the kind.
_OF_ATEN: Mapping[str, AttributeKind] = {**KINDS, "SymInt": "int", "SymInt[]": "ints"}
# The values that `aten_process` calls an operator with.
_GIVEN: Mapping[AttributeKind, AttributeValue] = {
    "int": 1, "float": 0.5, "bool": True, "string": "none", "ints": (0,), "floats": (0.5,),
}  # fmt: skip


def from_aten(described: Mapping[str, Any], qualified: str, *, domain: str, name: str = "", op_type: str = "") -> Draft:
    """Return an override of the default overload, from aten_process' `described`. Raises UsageError if impossible."""

    def measured(output: Output, sample: Mapping[str, Any]) -> Output:
        """Return the output with the dtype and shape of `sample`."""
        declared = "T" if sample["dtype"] == "float32" else sample["dtype"]
        same = sample["shape"] == runs["shape"]
        shape = shape_rule(inputs, declared) if same else FromKernel(rank=len(sample["shape"]))
        return replace(output, type=declared, shape=shape)

    schema = parser.parse(_default_overload(described, qualified))
    if refused := [*_refused_override(schema)]:
        parser.refuse(f"{schema.qualified} of torch {described['torch']} cannot be declared:", schema.text, refused)
    renamed = dict.fromkeys(("self", "input"), unused("x", [a.name for a in schema.arguments]))
    arguments = tuple(replace(a, name=renamed.get(a.name, a.name)) for a in schema.arguments)
    inputs, attributes, outputs = parts(replace(schema, arguments=arguments), "T", _attribute_kind)
    # A declaration has those without a default first. They are given by name, so their order is free.
    attributes = tuple(sorted(attributes, key=lambda a: a.default is not None))
    runs = described["runs"].get("") or {}
    if runs:
        outputs = tuple(measured(o, sample) for o, sample in zip(outputs, runs["outputs"], strict=True))
    if not name:
        is_free = re.fullmatch(r"[a-z][a-z0-9_]*", schema.name) and not is_reserved(schema.name)
        name = schema.name if is_free else f"aten_{snake_case(schema.name)}"
    spec = OpSpec(
        name=name,
        summary=SUMMARY,
        torch=TorchOp(name=schema.qualified, overrides=(Override(name=schema.qualified),)),
        onnx=OnnxOp(domain=domain, op_type=op_type or op_type_of(snake_case(name).removeprefix("aten_"))),
        types={"T": USUAL_DTYPES},
        inputs=inputs,
        attributes=attributes,
        outputs=outputs,
        tolerances={},
    )
    draft = Draft(
        spec=spec,
        notes=tuple(_notes(schema, runs)),
        aten=schema.qualified,
        origin=f"declared from {schema.text} of torch {described['torch']}",
        shape=tuple(runs.get("shape", SHAPE)),
        attributes={a.name: _GIVEN[a.kind] for a in attributes if a.default is None},
    )
    return finished(draft)


def _default_overload(described: Mapping[str, Any], qualified: str) -> str:
    name, _, overload = qualified.partition(".")
    schemas: Mapping[str, str] = described["schemas"]
    if not schemas and (namespace := name.partition("::")[0]) not in ("aten", name):
        raise UsageError(
            f"--override takes torch's own operators, aten::name, and {name!r} is of {namespace!r}. Write one of your "
            f"own with its schema, --schema 'my::...'; an export of the wheel's user may then give its translation to "
            f"the other: table[torch.ops.{name.replace('::', '.')}.default] = table[torch.ops.my.name.default]"
        )
    if not schemas:
        near = described.get("near") or []
        meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise UsageError(f"torch {described['torch']} has no operator {name!r}{meant}")
    if "" in schemas and overload in ("", "default"):
        return schemas[""]
    has = ", ".join(f"{name}.{o}" if o else f"{name}.default" for o in schemas)
    asked = f"the overload {overload!r}" if overload else "an operator without a default overload"
    raise UsageError(f"{asked} of {name} cannot be overridden: exports are keyed by default overloads. "
                     f"torch {described['torch']} has {has}")  # fmt: skip


def _attribute_kind(argument: Parameter) -> AttributeKind | None:
    """Return the attribute kind of a non-tensor argument, or None if it is left out."""
    name = re.sub(r"\[\d+\]", "[]", argument.type.name)
    if name == "Scalar":
        return "int" if argument.has_default and isinstance(argument.default, int) else "float"
    return None if argument.has_default and argument.default is None else _OF_ATEN.get(name)


def _refused_override(schema: Schema) -> Iterator[tuple[int, str]]:
    for argument in schema.arguments:
        if argument.type.alias:
            yield argument.type.at, parser.aliased(argument.type)
        elif argument.type.name not in TENSORS and not _attribute_kind(argument) and not argument.has_default:
            yield argument.type.at, why_no_type(argument.type)
    positional = [a for a in schema.arguments if not a.keyword]
    first = next((n for n, a in enumerate(positional) if a.type.name not in TENSORS), len(positional))
    if any(a.type.name in TENSORS for a in positional[first:]):
        yield positional[first].at, "it comes before a tensor, and a node of ONNX has inputs first"
    if not any(a.type.name == "Tensor" for a in schema.arguments):
        yield schema.text.index("("), "no argument is a Tensor; at least one is needed"
    yield from refused_results(schema)


def _notes(schema: Schema, runs: Mapping[str, Any]) -> Iterator[str]:
    left = [a.name for a in schema.arguments if a.type.name not in TENSORS and not _attribute_kind(a)]
    if left:
        yield f"left out, since ONNX has nothing for them: {', '.join(left)}. Models that give them are not exported so"
    if not runs:
        yield "torch refused random tensors of every shape that was tried: write cases.py, and the shapes in spec.py"
