"""Draft an override of an ATen operator. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from opmatrix.basics.errors import UsageError
from opmatrix.scaffold.draft import (
    FLOATS,
    SHAPE,
    SUMMARY,
    Draft,
    finished,
    is_reserved,
    op_type_of,
    shape_rule,
    snake_case,
    unused,
)
from opmatrix.scaffold.from_torch_schema import KINDS, TENSORS, parts, refused_results, why_no_type
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter, Schema
from opmatrix.spec import AttributeKind, AttributeValue, FromKernel, OnnxOp, OpSpec, Output, Override, TorchOp

# The attribute kinds of ATen's types; `_attribute_kind` handles Scalar, whose default shows the kind.
_KINDS: Mapping[str, AttributeKind] = {**KINDS, "SymInt": "int", "SymInt[]": "ints"}
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
    if refused := [*_refused(schema)]:
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
        types={"T": FLOATS},
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
    return None if argument.has_default and argument.default is None else _KINDS.get(name)


def _refused(schema: Schema) -> Iterator[tuple[int, str]]:
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
