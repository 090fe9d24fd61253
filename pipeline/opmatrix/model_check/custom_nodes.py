"""Which nodes of a model are custom, and whether they are as the declarations of this project say. Needs onnx alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from onnx import AttributeProto, ModelProto, NodeProto, defs, helper

from opmatrix.declaration.schema_versions import attributes_at
from opmatrix.declaration.torch_signature import is_required, onnx_kind, onnx_value
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.errors import did_you_mean, many
from opmatrix.lowering.graph import STANDARD, qualified
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import ONNX_DOMAINS, called, nodes, opsets
from opmatrix.spec import Attribute, AttributeValue, OpSpec

Builtin = Collection[tuple[str, str]]
"""Domain and op type of what ONNX Runtime has of its own."""


def used(model: ModelProto, operators: Sequence[OpSpec]) -> tuple[OpSpec, ...]:
    """Return the operators of this project that a model has nodes of."""
    found = {(n.domain, n.op_type) for n in nodes(model)}
    return tuple(o for o in operators if (o.onnx.domain, o.onnx.op_type) in found)


def faulty(model: ModelProto, operators: Sequence[OpSpec], builtin: Builtin) -> set[str]:
    """Return what `called` calls the nodes with which something is wrong."""
    return {called(n) for n in nodes(model) if next(_faults(n, model, operators, builtin), None)}


def node_findings(model: ModelProto, operators: Sequence[OpSpec], builtin: Builtin) -> Iterator[Finding]:
    """Yield what is wrong with the nodes, each fault once, or that all of them are known."""
    faults: dict[tuple[str, str], list[NodeProto]] = {}
    for node in nodes(model):
        for text, remedy in _faults(node, model, operators, builtin):
            faults.setdefault((text, remedy), []).append(node)
    for (text, remedy), (first, *others) in faults.items():
        text = f"{called(first)}{_and(first, others)}: {text}"
        yield finding.wrong("nodes", text, remedy)
    if not faults:
        yield finding.ok("nodes", _told(model, operators))


def _and(first: NodeProto, others: Sequence[NodeProto]) -> str:
    """Return how many more nodes have the same fault, and which other operators are among them."""
    if not others:
        return ""
    kinds = [kind for kind in dict.fromkeys(map(qualified, others)) if kind != qualified(first)]
    among = f", among them {', '.join(kinds)}" if kinds else ""
    return f" (and {len(others)} more node{'s' * (len(others) > 1)}{among})"


def _told(model: ModelProto, operators: Sequence[OpSpec]) -> str:
    """Return how many nodes there are, and what the custom ones are."""
    ours = {f"{o.onnx.domain}::{o.onnx.op_type}": o.name for o in operators}
    bodies = {f"{f.domain}::{f.name}" for f in model.functions}
    counts = Counter(qualified(n) for n in nodes(model) if n.domain not in ONNX_DOMAINS)
    total = sum(1 for _ in nodes(model))
    told = [
        f"{count} {name} ({_whose(name, ours, bodies)})" for name, count in sorted(counts.items())
    ]  # fmt: skip
    return f"{many(total, 'node')}, " + (f"custom: {', '.join(told)}" if told else "none custom")


def _whose(name: str, ours: Mapping[str, str], bodies: Collection[str]) -> str:
    if name in ours:
        return f"ops/{ours[name]}"
    return "a function of the model" if name in bodies else "ONNX Runtime's own"


NodeFault = tuple[str, str]


def _faults(node: NodeProto, model: ModelProto, operators: Sequence[OpSpec], builtin: Builtin) -> Iterator[NodeFault]:
    """Yield what is wrong with one node, and what to do about it."""
    imported = opsets(model)
    operator = next((o for o in operators if (o.onnx.domain, o.onnx.op_type) == (node.domain, node.op_type)), None)
    body = any((f.domain, f.name) == (node.domain, node.op_type) for f in model.functions)
    domain = "" if node.domain in STANDARD else node.domain
    if domain not in imported:
        again = "Export it again with the domain's version (custom_opsets), or add helper.make_opsetid"
        yield f"the model does not import its domain {node.domain!r}", again
    elif operator and imported[domain] not in operator.onnx.versions:
        versions = ", ".join(map(str, operator.onnx.versions))
        yield (
            f"the model imports version {imported[domain]} of {domain!r}, and ops/{operator.name} has: {versions}",
            f"Export it at one of these, or add the version to `versions` in ops/{operator.name}/spec.py",
        )
    if operator and operator.uses:
        names = " and ".join(operator.uses)
        yield f"ops/{operator.name} has no node of its own: it is written as nodes of {names}", "Export it again"
    elif operator:
        yield from _undeclared(node, operator, imported.get("", 0), imported.get(domain, 1))
    elif not body and node.domain in ONNX_DOMAINS:
        yield from _standard(node, imported.get(domain, 0), operators)
    elif not body and (node.domain, node.op_type) not in builtin:
        yield _unknown(node, operators, builtin)


def _unknown(node: NodeProto, operators: Sequence[OpSpec], builtin: Builtin) -> NodeFault:
    known = [f"{o.onnx.domain}::{o.onnx.op_type}" for o in operators]
    others = [o for o in operators if o.onnx.op_type == node.op_type]
    if others:
        return (
            f"no operator of this project; its op type is that of ops/{others[0].name}, in another domain",
            f"Did you mean {others[0].onnx.domain}::{node.op_type}?",
        )
    theirs = [f"{domain}::{name}" for domain, name in builtin if domain == node.domain]
    near = _near(qualified(node), [*known, *theirs])
    has = f"This project has: {', '.join(sorted(known)) or 'none'}"
    if not theirs:  # in a domain of ONNX Runtime's own there is nothing to declare
        has = f"{has}. `doit new --from-onnx` declares what is missing, from this model"
    return "neither this project nor ONNX Runtime has such an operator", near or has


def _standard(node: NodeProto, opset: int, operators: Sequence[OpSpec]) -> Iterator[NodeFault]:
    """Yield what is wrong with a node in a domain of ONNX's own, beside what its checker says."""
    history = [s for s in defs.get_all_schemas_with_history() if (s.domain, s.name) == (_domain(node), node.op_type)]
    if not history:
        ours = next((o for o in operators if o.onnx.op_type == node.op_type), None)
        names = {s.name for s in defs.get_all_schemas() if s.domain == _domain(node)}
        near = _near(node.op_type, names)
        remedy = f"Give the node the domain {ours.onnx.domain!r} of ops/{ours.name}" if ours else near
        yield "ONNX has no such operator", remedy
    elif opset < (first := min(s.since_version for s in history)):
        yield f"the model has opset {opset}, and the operator begins at {first}", f"Export at opset {first} or above"
    elif defs.get_schema(node.op_type, opset, _domain(node)).deprecated:
        yield f"no operator of opset {opset} any more", "Export it again; onnx.version_converter may do as well"


def _near(found: str, allowed: Iterable[str]) -> str:
    """Return ``Did you mean 'x'?`` as a sentence, or nothing."""
    return did_you_mean(found, allowed).removeprefix("; ").replace("did", "Did", 1)


def _domain(node: NodeProto) -> str:
    return "" if node.domain in STANDARD else node.domain


def _undeclared(node: NodeProto, spec: OpSpec, opset: int, version: int) -> Iterator[NodeFault]:
    """Yield in what a node differs from the declaration of its operator."""
    where = f"ops/{spec.name}/spec.py"
    if opset and opset < spec.min_opset:
        yield (
            f"the model has opset {opset}, and ops/{spec.name} is declared from {spec.min_opset} on",
            f"Export at opset {spec.min_opset} or above",
        )
    yield from _inputs(node, spec, where)
    if len(node.output) > len(spec.outputs):
        names = ", ".join(o.name for o in spec.outputs)
        yield f"it has {len(node.output)} outputs, declared: {len(spec.outputs)} ({names})", f"Compare with {where}"
    declared = {a.name: a for a in attributes_at(spec, version)}
    later = {a.name: a.since for a in spec.attributes if a.since and not a.torch_only}
    given = {a.name: a for a in node.attribute}
    for name, attribute in given.items():
        if name not in declared and name in later:
            since, domain = later[name], spec.onnx.domain
            yield (
                f"attribute {name!r} is of version {since} of {domain!r}, and the model imports {version}",
                f"Import version {since}, or leave it out: older libraries take no notice of it",
            )
        elif name not in declared:
            has = ", ".join(declared) or "none"
            near = _near(name, declared)
            yield f"it has no attribute {name!r}; declared: {has}", near or f"Remove it, or declare it in {where}"
        elif why := _attribute_fault(declared[name], attribute):
            yield f"attribute {name!r}: {why}", f"Compare with {where}"
    for name, wanted in declared.items():
        if name not in given and wanted.default is None:
            yield f"attribute {name!r} is missing and has no default", f"Write it, a {wanted.kind}; see {where}"


def _inputs(node: NodeProto, spec: OpSpec, where: str) -> Iterator[NodeFault]:
    variadic = any(i.variadic for i in spec.inputs)
    names = ", ".join(i.name + "?" * i.optional + "*" * i.variadic for i in spec.inputs)
    if len(node.input) > len(spec.inputs) and not variadic:
        yield f"it has {len(node.input)} inputs, declared: {len(spec.inputs)} ({names})", f"Compare with {where}"
    for index, part in enumerate(spec.inputs):
        absent = index >= len(node.input) or not node.input[index]
        if absent and is_required(part):
            yield (
                f"its input {part.name!r}, number {index + 1} of {len(spec.inputs)} ({names}), is missing",
                "An attribute given as an input, or the other way round, leaves such a gap; compare with " + where,
            )


def _attribute_fault(declared: Attribute, found: AttributeProto) -> str | None:
    if found.ref_attr_name:  # within a function: the value stands where it is called
        return None
    kind, wanted = AttributeProto.AttributeType.Name(found.type), onnx_kind(declared.kind)
    if kind != wanted:
        return f"it is {kind}, declared: {wanted}"
    if declared.kind == "tensor":
        return None
    return value_mistake(declared, _value(declared, found))


def _value(declared: Attribute, found: AttributeProto) -> AttributeValue:
    """Return the value of an attribute as a declaration has it. A float was rounded, and so are the allowed ones."""
    value = helper.get_attribute_value(found)
    many = declared.kind.endswith("s")
    items = [
        i.decode(errors="replace") if isinstance(i, bytes) else bool(i) if declared.kind.startswith("bool") else i
        for i in (value if many else [value])
    ]
    plain = cast(AttributeValue, tuple(items) if many else items[0])
    return next((a for a in declared.allowed or () if onnx_value(declared, a) == plain), plain)
