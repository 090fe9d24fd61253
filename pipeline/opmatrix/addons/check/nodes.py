"""The "nodes" finding of `doit check`: each node against the declarations and ONNX's schemas. Imports onnx alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import cast

from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper

from opmatrix.addons.check.functions import Inlined, NodeFault, import_faults, onnx_schemas, unknown_overload
from opmatrix.addons.check.graph_walk import domain_of, node_label, nodes, opsets, spec_of
from opmatrix.addons.check.repair import is_external
from opmatrix.basics import finding
from opmatrix.basics.errors import did_you_mean, many
from opmatrix.basics.finding import Finding
from opmatrix.data.dataset import to_array
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import Declared
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.lowering.graph import qualified
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import ONNX_DOMAINS, onnx_kind, onnx_name, onnx_value
from opmatrix.signature.versions import attributes_at
from opmatrix.sizes.variadic import count, counter, reason, sure_inputs, variadic_output
from opmatrix.spec import Attribute, AttributeValue, OpSpec, Output

Builtin = Collection[tuple[str, str]]
"""Domain and op type of each operator that ONNX Runtime implements."""

# Their outputs are random unless they have a seed; onnx and ONNX Runtime draw other numbers from equal seeds.
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"}
)


@cache
def declared_operators(paths: Paths) -> Declared:
    """Return the operators of the project, read once in a process."""
    return read_operators(paths)


def random_nodes(model: ModelProto) -> Iterator[NodeProto]:
    """Yield the nodes that draw random numbers; a Dropout does in training."""
    bools = (t for t in model.graph.initializer if t.data_type == TensorProto.BOOL and not is_external(t))
    never = {t.name for t in bools if not to_array(t).any()}
    for node in nodes(model):
        is_training = node.op_type == "Dropout" and len(node.input) > 2 and node.input[2] not in (*never, "")
        if node.domain in ONNX_DOMAINS and (node.op_type in RANDOM or is_training):
            yield node


def used_operators(model: ModelProto, operators: Sequence[OpSpec]) -> tuple[OpSpec, ...]:
    """Return the operators of this project that the model uses."""
    found = {(n.domain, n.op_type) for n in nodes(model)}
    return tuple(o for o in operators if (o.onnx.domain, o.onnx.op_type) in found)


def foreign_operators(model: ModelProto, operators: Sequence[OpSpec], builtin: Builtin) -> set[tuple[str, str]]:
    """Return domain and op type of the nodes that neither ONNX, ONNX Runtime nor this project defines."""
    known = {(o.onnx.domain, o.onnx.op_type) for o in operators}
    found = {(n.domain, n.op_type) for n in nodes(model) if n.domain not in ONNX_DOMAINS}
    return {key for key in found if key not in known and key not in builtin}


def node_faults(inlined: Inlined, operators: Sequence[OpSpec], builtin: Builtin) -> dict[NodeFault, list[NodeProto]]:
    """Return each fault of the nodes, with the nodes that have it."""
    faults: dict[NodeFault, list[NodeProto]] = {}
    imported = opsets(inlined.model)
    for node, fault in import_faults(inlined, operators):
        faults.setdefault(fault, []).append(node)
    for node in nodes(inlined.model):
        for fault in _faults(node, imported, inlined.original.functions, operators, builtin):
            faults.setdefault(fault, []).append(node)
    return faults


def node_findings(
    inlined: Inlined, operators: Sequence[OpSpec], faults: Mapping[NodeFault, Sequence[NodeProto]]
) -> Iterator[Finding]:
    """Yield each of the faults once, or one "ok" finding where there is none, and the functions without a call."""
    for (text, remedy), (first, *others) in faults.items():
        kinds = [kind for kind in dict.fromkeys(map(qualified, others)) if kind != qualified(first)]
        among = f", among them {', '.join(kinds)}" if kinds else ""
        more = f" (and {len(others)} more node{'s' * (len(others) > 1)}{among})" if others else ""
        yield finding.wrong("nodes", f"{node_label(first)}{more}: {text}", remedy)
    if not faults:
        yield finding.ok("nodes", _summary(inlined, operators))
    if inlined.uncalled:
        names = ", ".join(inlined.uncalled[:5])
        count = many(len(inlined.uncalled), "function")
        yield finding.note("nodes", f"{count} of the model without a call, whose nodes are not checked: {names}")


def _summary(inlined: Inlined, operators: Sequence[OpSpec]) -> str:
    """Return the number of nodes, where each custom operator is from, and the calls of functions."""
    origins = {f"{o.onnx.domain}::{o.onnx.op_type}": f"ops/{o.name}" for o in operators}
    counts = Counter(qualified(n) for n in nodes(inlined.model) if n.domain not in ONNX_DOMAINS)
    builtin = "ONNX Runtime's own"
    custom = [f"{count} {name} ({origins.get(name, builtin)})" for name, count in sorted(counts.items())]
    total = sum(1 for _ in nodes(inlined.model))
    calls = ", ".join(f"{count} {name}" for name, count in sorted(inlined.calls.items()))
    functions = f"; calls of the model's functions: {calls}" if calls else ""
    return f"{many(total, 'node')}, " + (f"custom: {', '.join(custom)}" if custom else "none custom") + functions


def _faults(
    node: NodeProto,
    imported: Mapping[str, int],
    functions: Sequence[FunctionProto],
    operators: Sequence[OpSpec],
    builtin: Builtin,
) -> Iterator[NodeFault]:
    """Yield the faults of one node, but for those of its imports. `functions`: of the model."""
    operator = spec_of(node, operators)
    domain = domain_of(node)
    if operator and imported.get(domain, operator.onnx.since_version) not in operator.onnx.versions:
        versions = ", ".join(map(str, operator.onnx.versions))
        yield (
            f"the model imports version {imported[domain]} of {domain!r}, and ops/{operator.name} has: {versions}",
            f"Export it at one of these, or add the version to `versions` in ops/{operator.name}/spec.py",
        )
    if operator and operator.uses:
        names = " and ".join(operator.uses)
        yield f"ops/{operator.name} has no node of its own: it is written as nodes of {names}", "Export it again"
    elif operator:
        yield from _declaration_faults(node, operator, imported.get("", 0), imported.get(domain, 1))
    elif node.domain in ONNX_DOMAINS:
        yield from _onnx_faults(node, imported.get(domain, 0), operators)
    elif (node.domain, node.op_type) not in builtin:
        yield unknown_overload(node, functions) or _unknown_operator(node, operators, builtin)


def _unknown_operator(node: NodeProto, operators: Sequence[OpSpec], builtin: Builtin) -> NodeFault:
    known = [f"{o.onnx.domain}::{o.onnx.op_type}" for o in operators]
    others = [o for o in operators if o.onnx.op_type == node.op_type]
    if others:
        return (
            f"no operator of this project; its op type is that of ops/{others[0].name}, in another domain",
            f"Did you mean {others[0].onnx.domain}::{node.op_type}?",
        )
    in_domain = [f"{domain}::{name}" for domain, name in builtin if domain == node.domain]
    near = _near(qualified(node), [*known, *in_domain])
    has = f"This project has: {', '.join(sorted(known)) or 'none'}"
    if not in_domain:  # a project cannot declare operators in a domain of ONNX Runtime
        has = f"{has}. `doit new --from-onnx` declares what is missing, from this model"
    return "neither this project nor ONNX Runtime has such an operator", near or has


def _onnx_faults(node: NodeProto, opset: int, operators: Sequence[OpSpec]) -> Iterator[NodeFault]:
    """Yield the faults of a node in one of ONNX's domains that onnx.checker does not report."""
    domain = domain_of(node)
    history = onnx_schemas().get((domain, node.op_type))
    if not history:
        spec = next((o for o in operators if o.onnx.op_type == node.op_type), None)
        near = _near(node.op_type, {name for of, name in onnx_schemas() if of == domain})
        remedy = f"Give the node the domain {spec.onnx.domain!r} of ops/{spec.name}" if spec else near
        yield "ONNX has no such operator", remedy
    elif opset < (first := min(history)):
        yield f"the model has opset {opset}, and the operator begins at {first}", f"Export at opset {first} or above"
    elif history[max(version for version in history if version <= opset)].deprecated:
        yield f"no operator of opset {opset} any more", "Export it again; onnx.version_converter may do as well"


def _near(name: str, allowed: Iterable[str]) -> str:
    """Return ``Did you mean 'x'?`` as a sentence, or nothing."""
    return did_you_mean(name, allowed).removeprefix("; ").replace("did", "Did", 1)


def _declaration_faults(node: NodeProto, spec: OpSpec, opset: int, version: int) -> Iterator[NodeFault]:
    where = f"ops/{spec.name}/spec.py"
    if opset and opset < spec.min_opset:
        yield (
            f"the model has opset {opset}, and ops/{spec.name} is declared from {spec.min_opset} on",
            f"Export at opset {spec.min_opset} or above",
        )
    yield from _input_faults(node, spec, where)
    if last := variadic_output(spec):
        yield from _variadic_faults(node, spec, last, where)
    elif len(node.output) > len(spec.outputs):
        names = ", ".join(o.name for o in spec.outputs)
        yield f"it has {len(node.output)} outputs, declared: {len(spec.outputs)} ({names})", f"Compare with {where}"
    given_outputs = [*node.output, *[""] * len(spec.outputs)]
    for output, name in zip(spec.outputs, given_outputs, strict=False):
        if not name and not output.optional:
            yield f"output {output.name!r} has no name, and it is not optional", f"Name it, or see {where}"
    declared = {onnx_name(a): a for a in attributes_at(spec, version)}
    later = {onnx_name(a): a.since for a in spec.attributes if a.since and not a.torch_only}
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
        if name not in given and wanted.default is None and not wanted.optional:
            yield f"attribute {name!r} is missing and has no default", f"Write it, a {wanted.kind}; see {where}"


def _variadic_faults(node: NodeProto, spec: OpSpec, last: Output, where: str) -> Iterator[NodeFault]:
    part = counter(spec)
    inputs: dict[str, Sequence[str]] = {}
    attributes: dict[str, AttributeValue] = {}
    if isinstance(part, Attribute):
        found = next((a for a in node.attribute if a.name == onnx_name(part)), None)
        if found is None and part.default is None:
            return  # reported as missing
        if found is not None and _attribute_fault(part, found):
            return  # reported as wrong
        if found is not None and found.ref_attr_name:  # in a function body: the call gives the value
            return
        attributes = {part.name: part.default if found is None else attribute_value(part, found)}
    elif part is not None:
        inputs = {part.name: node.input[spec.inputs.index(part) :]}
    wanted, given = count(spec, inputs, attributes), len(node.output) - len(spec.outputs) + 1
    if wanted != given:
        yield (
            f"it has {given} tensors of the output {last.name!r}, declared: {wanted}, {reason(spec)}",
            f"Compare with {where}",
        )
    for index, name in enumerate(node.output):
        if not name and index >= len(spec.outputs):
            yield f"output {index} has no name, and {last.name!r} has all its tensors", f"Name it, or see {where}"


def _input_faults(node: NodeProto, spec: OpSpec, where: str) -> Iterator[NodeFault]:
    variadic = any(i.variadic for i in spec.inputs)
    names = ", ".join(i.name + "?" * i.optional + "*" * i.variadic for i in spec.inputs)
    if len(node.input) > len(spec.inputs) and not variadic:
        yield f"it has {len(node.input)} inputs, declared: {len(spec.inputs)} ({names})", f"Compare with {where}"
    for index, part in enumerate(spec.inputs):
        absent = index >= len(node.input) or not node.input[index]
        if absent and part in sure_inputs(spec):
            yield (
                f"its input {part.name!r}, number {index + 1} of {len(spec.inputs)} ({names}), is missing",
                "An attribute given as an input, or the other way round, leaves such a gap; compare with " + where,
            )


def _attribute_fault(declared: Attribute, attribute: AttributeProto) -> str | None:
    if attribute.ref_attr_name:  # in a function body: the call gives the value
        return None
    kind, wanted = AttributeProto.AttributeType.Name(attribute.type), onnx_kind(declared.kind)
    if kind != wanted:
        return f"it is {kind}, declared: {wanted}"
    if declared.kind == "tensor":
        dtype = str(helper.tensor_dtype_to_np_dtype(attribute.t.data_type))
        if dtype != declared.type:
            return f"it is {dtype}, declared: {declared.type}"
        dims, shape = declared.dims or (), tuple(attribute.t.dims)
        fits = len(shape) == len(dims) and all(dim in (None, size) for dim, size in zip(dims, shape, strict=True))
        return None if fits else f"it has the shape {shape}, declared: {dims}"
    return value_mistake(declared, attribute_value(declared, attribute))


def attribute_value(declared: Attribute, attribute: AttributeProto) -> AttributeValue:
    """Return an attribute's value as the declaration writes it; one that rounds to the same float32 is equal."""
    value = helper.get_attribute_value(attribute)
    is_list = declared.kind.endswith("s")
    items = [
        i.decode(errors="replace") if isinstance(i, bytes) else bool(i) if declared.kind.startswith("bool") else i
        for i in (value if is_list else [value])
    ]
    plain = cast(AttributeValue, tuple(items) if is_list else items[0])
    return next((a for a in declared.allowed or () if onnx_value(declared, a) == plain), plain)
