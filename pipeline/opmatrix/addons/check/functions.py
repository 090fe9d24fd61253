"""Put the nodes of a model's functions in place of their calls, as ONNX Runtime does, and repair what it does; find the
faults of imports and calls. onnx's own inliner (1.23) ignores the defaults of attributes, and its nodes do not show
which call they are from. Imports onnx alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, defs, helper

from opmatrix.addons.check.graph_walk import (
    ORIGIN,
    domain_of,
    node_label,
    opsets,
    spec_of,
    subgraphs,
    value_names,
    walk,
)
from opmatrix.addons.check.repair import make_dense, needs_repair, repair
from opmatrix.basics.errors import VerifyError
from opmatrix.lowering.graph import qualified
from opmatrix.signature.versions import version_at
from opmatrix.spec import OpSpec

MOST_NODES = 100_000  # of all calls together: functions that call each other twice make 2 ** depth
MOST_DEEP = 100  # calls within calls; each takes several frames of Python's stack


class InlineError(VerifyError):
    """The calls take more nodes than are checked."""


class CycleError(InlineError):
    """A function calls itself, which ONNX forbids."""


@dataclass(frozen=True, kw_only=True)
class Inlined:
    """`model` has no functions, imports the domains that the called ones import as well, and is repaired. `original` is
    the model that was given, `calls` counts the calls of each function."""

    model: ModelProto
    original: ModelProto
    called: Sequence[FunctionProto] = ()
    calls: Mapping[str, int]

    @property
    def uncalled(self) -> list[str]:
        """The names of the functions that no node calls."""
        names = dict.fromkeys(function_name(f) for f in self.original.functions)
        return [name for name in names if name not in self.calls]

    @property
    def to_check(self) -> ModelProto:
        """The model for onnx.checker: with no functions but those that are called, and no sparse initializers."""
        if not self.uncalled and not self.original.graph.sparse_initializer:
            return self.original
        model = deepcopy(self.original)
        make_dense(model.graph)
        del model.functions[:]
        model.functions.extend(self.called)
        return model


def function_name(proto: FunctionProto | NodeProto) -> str:
    """Return ``domain::name`` of a function or a call, ``domain::name:overload`` of an overload."""
    name = f"{proto.domain}::{proto.name}" if isinstance(proto, FunctionProto) else qualified(proto)
    return f"{name}:{proto.overload}" if proto.overload else name


def inline(model: ModelProto, operators: Sequence[OpSpec]) -> Inlined:
    """Return the model, repaired, with the nodes of its functions in place of their calls. Raises InlineError.

    A node of ONNX or of one of the `operators` calls no function: ONNX Runtime takes their kernels.
    """
    if not model.functions and not needs_repair(model.graph):
        return Inlined(model=model, original=model, calls={})
    made = deepcopy(model)
    del made.functions[:], made.graph.node[:]
    inliner = _Inliner(model, operators)
    made.graph.node.extend(inliner.replaced(model.graph.node))
    called = list(inliner.called.values())
    imported = {domain_of(o) for o in made.opset_import}
    for opset in (o for function in called for o in function.opset_import):
        if domain_of(opset) not in imported:
            imported.add(domain_of(opset))
            made.opset_import.append(opset)
    repair(made.graph)
    return Inlined(model=made, original=model, called=called, calls=inliner.calls)


def or_as_it_is(model: ModelProto, operators: Sequence[OpSpec]) -> ModelProto:
    """Return the inlined model, or the given one where its calls cannot be inlined."""
    try:
        return inline(model, operators).model
    except InlineError:
        return model


class _Inliner:
    """Replaces calls; `called` are the functions that were called, in order, and `calls` counts them."""

    def __init__(self, model: ModelProto, operators: Sequence[OpSpec]) -> None:
        self._functions = {(domain_of(f), f.name, f.overload): f for f in model.functions}
        self._operators = operators
        self._taken = value_names(model.graph)
        self._used: Counter[str] = Counter()  # further values of each name
        self._made = 0
        self.called: dict[str, FunctionProto] = {}
        self.calls: Counter[str] = Counter()

    def replaced(self, nodes: Iterable[NodeProto], within: tuple[str, ...] = ()) -> Iterator[NodeProto]:
        """Yield the nodes, each call replaced by the nodes of its function. `within`: the calls around them."""
        for node in nodes:
            if function := self._function(node):
                yield from self._body(function, node, within)
                continue
            if any(True for _ in subgraphs(node)):
                node = deepcopy(node)
                for graph in subgraphs(node):
                    inner = list(self.replaced(graph.node, within))
                    del graph.node[:]
                    graph.node.extend(inner)
            yield node

    def _function(self, node: NodeProto) -> FunctionProto | None:
        if defs.has(node.op_type, domain_of(node)) or spec_of(node, self._operators):
            return None
        return self._functions.get((domain_of(node), node.op_type, node.overload))

    def _body(self, function: FunctionProto, call: NodeProto, within: tuple[str, ...]) -> Iterator[NodeProto]:
        name = function_name(function)
        if name in within:
            cycle = " -> ".join((*within[within.index(name) :], name))
            raise CycleError(f"a function calls itself, which ONNX forbids: {cycle}")
        self._made += len(function.node)
        if self._made > MOST_NODES or len(within) >= MOST_DEEP:
            most = f"{MOST_NODES:,} nodes, or {MOST_DEEP} functions within each other"
            raise InlineError(f"the calls of its functions come to more than {most}")
        self.called.setdefault(name, function)
        self.calls[name] += 1
        names = {formal: actual or "" for formal, actual in zip_longest(function.input, call.input) if formal}
        # Two outputs of a call may be one value of the function, or an input of it.
        copied = []
        for formal, actual in zip(function.output, call.output, strict=False):
            if actual and names.get(formal):
                copied.append((formal, actual))
            elif actual:
                names[formal] = actual
        values = {a.name: a for a in (*function.attribute_proto, *call.attribute)}
        for node in function.node:
            yield from self.replaced([self._instance(node, names, values, call)], (*within, name))
        for formal, actual in copied:
            yield self._labelled(helper.make_node("Identity", [names[formal]], [actual]), call)

    def _instance(
        self, node: NodeProto, names: dict[str, str], values: Mapping[str, AttributeProto], call: NodeProto
    ) -> NodeProto:
        """Return a node of a function's body as the call makes it, and add the names of its outputs to `names`."""
        instance = self._labelled(node, call)
        instance.input[:] = [self._named(name, names) for name in node.input]
        instance.output[:] = [self._named(name, names) for name in node.output]
        del instance.attribute[:]
        for attribute in node.attribute:
            given = values.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if given is None:
                continue  # the call does not give it, and it has no default: the node has its own
            bound = instance.attribute.add()
            bound.CopyFrom(given)
            bound.name = attribute.name
        for graph in subgraphs(instance):
            inner = dict(names)
            for value in (*graph.input, *graph.initializer, *(s.values for s in graph.sparse_initializer)):
                inner[value.name] = value.name = self._new(value.name)
            nodes = [self._instance(n, inner, values, call) for n in graph.node]
            del graph.node[:], graph.value_info[:]
            graph.node.extend(nodes)
            for value in graph.output:
                value.name = self._named(value.name, inner)
        return instance

    def _labelled(self, node: NodeProto, call: NodeProto) -> NodeProto:
        """Return a copy of a node whose label in a message contains its call."""
        labelled = deepcopy(node)
        label = f"{node_label(node)} in {node_label(call)}"
        del labelled.metadata_props[:]
        labelled.metadata_props.add(key=ORIGIN, value=label)
        return labelled

    def _named(self, name: str, names: dict[str, str]) -> str:
        """Return the name in the model of a value of a function, a new one at its first use."""
        if name and name not in names:
            names[name] = self._new(name)
        return names.get(name, "")

    def _new(self, name: str) -> str:
        """Return a name that no other value has, the given one if it is free."""
        free = name
        while free in self._taken:
            self._used[name] += 1
            free = f"{name}_{self._used[name]}"
        self._taken.add(free)
        return free


NodeFault = tuple[str, str]
"""What is wrong, and the remedy."""

_AGAIN = "Export it again with the domain's version (custom_opsets), or add helper.make_opsetid"


def import_faults(inlined: Inlined, operators: Sequence[OpSpec]) -> Iterator[tuple[NodeProto, NodeFault]]:
    """Yield the faults of the imports of the model and of each function that is called, and of the calls."""
    functions = {(domain_of(f), f.name, f.overload): f for f in inlined.called}
    of_model = opsets(inlined.original)
    scopes = [("the model", of_model, inlined.original.graph.node)]
    scopes += [(f"the function {function_name(f)}", opsets(f), f.node) for f in inlined.called]
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
                for what, given, has in (
                    ("input", node.input, function.input),
                    ("output", node.output, function.output),
                ):
                    if len(given) > len(has):
                        text = f"it has {len(given)} {what}s, and the function {len(has)} ({', '.join(has)})"
                        yield node, (text, f"Call it with as many {what}s as it has, or add one to the function")


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
    schemas: dict[tuple[str, str], dict[int, defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():  # takes 40 ms
        schemas.setdefault((schema.domain, schema.name), {})[schema.since_version] = schema
    return schemas
