"""The faults of a model's imports, of those of its functions, and of the calls of these. Imports onnx alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from onnx import FunctionProto, NodeProto, defs

from opmatrix.declaration.schema_versions import version_at
from opmatrix.model_check.graph_walk import domain_of, opsets, spec_of, walk
from opmatrix.model_check.inline_functions import Inlined, function_name
from opmatrix.spec import OpSpec

NodeFault = tuple[str, str]
"""What is wrong, and the remedy."""

_AGAIN = "Export it again with the domain's version (custom_opsets), or add helper.make_opsetid"


def import_faults(found: Inlined, operators: Sequence[OpSpec]) -> Iterator[tuple[NodeProto, NodeFault]]:
    """Yield the faults of the imports of the model and of each function that is called, and of the calls."""
    functions = {(domain_of(f), f.name, f.overload): f for f in found.called}
    of_model = opsets(found.original)
    scopes = [("the model", of_model, found.original.graph.node)]
    scopes += [(f"the function {function_name(f)}", opsets(f), f.node) for f in found.called]
    for whose, imported, nodes in scopes:
        for node in walk(nodes):
            domain = domain_of(node)
            ours, theirs = imported.get(domain), of_model.get(domain)
            if ours is None:
                yield node, (f"{whose} does not import its domain {node.domain!r}", _AGAIN)
            elif theirs is not None and _differ(node, ours, theirs, operators):
                name = domain or "ai.onnx"
                text = f"{whose} imports version {ours} of {name!r}, the model {theirs}, where it is another operator"
                yield node, (text, f"Import one version in both: ONNX Runtime takes {theirs}")
            if function := functions.get((domain, node.op_type, node.overload)):
                yield from ((node, fault) for fault in _call_faults(node, function))


def _call_faults(call: NodeProto, function: FunctionProto) -> Iterator[NodeFault]:
    for what, given, has in (("input", call.input, function.input), ("output", call.output, function.output)):
        if len(given) > len(has):
            text = f"it has {len(given)} {what}s, and the function {len(has)} ({', '.join(has)})"
            yield text, f"Call it with as many {what}s as it has, or add one to the function"


def _differ(node: NodeProto, ours: int, theirs: int, operators: Sequence[OpSpec]) -> bool:
    """Return whether a node is another operator in another version of its domain, not only one with more dtypes."""
    if ours == theirs:
        return False
    if operator := spec_of(node, operators):
        return version_at(operator, ours) != version_at(operator, theirs)
    history = onnx_schemas().get((domain_of(node), node.op_type), {})
    since = sorted(history)
    first, second = (bisect_right(since, version) for version in (ours, theirs))
    if first == second:
        return False
    return 0 in (first, second) or _form(history[since[first - 1]]) != _form(history[since[second - 1]])


def _form(schema: defs.OpSchema) -> tuple[object, ...]:
    """Return inputs, outputs and attributes of an operator, with their defaults."""
    attributes = {
        name: (a.type, a.required, a.default_value.SerializeToString()) for name, a in schema.attributes.items()
    }
    return [p.name for p in schema.inputs], [p.name for p in schema.outputs], attributes


def unknown_overload(node: NodeProto, functions: Sequence[FunctionProto]) -> NodeFault | None:
    """Return that a node calls an overload that the functions of its name do not have; None for any other node."""
    overloads = [f.overload for f in functions if (domain_of(f), f.name) == (domain_of(node), node.op_type)]
    if not overloads:
        return None
    has = ", ".join(map(repr, overloads))
    return f"the model has no overload {node.overload!r} of this function, it has: {has}", "Call one of these"


@cache
def onnx_schemas() -> Mapping[tuple[str, str], Mapping[int, defs.OpSchema]]:
    """Return every schema of ONNX by domain and op type, then by its first version."""
    found: dict[tuple[str, str], dict[int, defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():  # takes 40 ms
        found.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return found
