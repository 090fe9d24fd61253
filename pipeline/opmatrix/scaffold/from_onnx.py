"""Draft operators from the custom nodes of a model, as onnx_process describes them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opmatrix.basics.errors import UsageError, did_you_mean, many
from opmatrix.declaration.validation.fields import WHY_NO_DTYPE
from opmatrix.declaration.validation.operator import IDENTIFIER, TAKEN
from opmatrix.declaration.validation.rules import TENSOR_DTYPES
from opmatrix.project.dtypes import DTYPES
from opmatrix.scaffold import free_names, from_torch_schema
from opmatrix.scaffold.draft import SUMMARY, USUAL_DTYPES, Draft, finished, is_reserved, is_variable, shape_rule, unused
from opmatrix.scaffold.free_names import NOTHING, Used
from opmatrix.signature.signature import is_required, onnx_name, to_float32
from opmatrix.sizes.variadic import sure_inputs, variadic_output
from opmatrix.spec import (
    Attribute,
    AttributeValue,
    Case,
    Dims,
    DType,
    FromKernel,
    Input,
    Model,
    OnnxOp,
    OpSpec,
    Output,
    Random,
    SameAs,
)

Node = Mapping[str, Any]
Value = Mapping[str, Any]  # an input or output of a node
ZEROS: Mapping[str, AttributeValue] = {
    "float": 0.0, "int": 0, "string": "", "floats": (), "ints": (), "strings": (),
}  # fmt: skip


def parts_of(nodes: Sequence[Node], side: str, index: int) -> list[Value | None]:
    """Return the input or output `index` of each node, None where it is absent."""
    return [n[side][index] if index < len(n[side]) else None for n in nodes]


def dtypes_of(nodes: Sequence[Node], side: str, index: int) -> list[str | None]:
    """Return the dtype of input or output `index` of each node, None where it is absent or unknown."""
    return [part["dtype"] if part else None for part in parts_of(nodes, side, index)]


def who(node: Node) -> str:
    """Return what names a node in a message."""
    given = next((output["name"] for output in node["outputs"] if output), "")
    return f"node {node['name']!r}" if node["name"] else f"the node that gives {given!r}"


def refused(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield why the nodes of one operator cannot be declared."""
    kinds: dict[str, str] = {}
    for node in nodes:
        yield from refused_dtypes(node)
        for key, value in node["attributes"].items():
            if value["kind"] == "bytes":
                yield f"{who(node)}: attribute {key!r} contains bytes that are not text (a NUL, or not UTF-8), and " \
                    "a kernel gets an attribute as text: make it an input of uint8"  # fmt: skip
            elif value["kind"] not in (*ZEROS, "tensor"):
                yield f"{who(node)}: attribute {key!r} is of the kind {value['kind']}, not supported: leave it out"
            elif kinds.setdefault(key, value["kind"]) != value["kind"]:
                yield f"{who(node)}: attribute {key!r} is of the kind {value['kind']}, elsewhere of {kinds[key]}"
            elif not re.fullmatch(IDENTIFIER, key):
                yield f"{who(node)}: attribute {key!r} is not an identifier of ONNX: letters, digits and _"
            elif value["kind"] == "tensor":
                yield from _refused_tensor(nodes, node, key)
        if not node["inputs"] or node["inputs"][0] is None:
            yield f"{who(node)} has no first input, and one is needed that is always there"
        if not any(node["outputs"]):
            yield f"{who(node)} has no output"
    if not any(all(parts_of(nodes, "outputs", index)) for index in range(max(len(n["outputs"]) for n in nodes))):
        yield "no output is one that all its nodes have, and an operator needs one that is always there"
    yield from refused_mixture(nodes)


def refused_dtypes(node: Node) -> Iterator[str]:
    """Yield the inputs and outputs of a dtype that no operator takes."""
    for part in (*node["inputs"], *node["outputs"]):
        dtype = part and part["dtype"]
        if dtype and dtype not in DTYPES:
            yield f"{who(node)}: {part['name']!r} is {dtype}, {WHY_NO_DTYPE.get(dtype, 'which no operator takes')}"


def _refused_tensor(nodes: Sequence[Node], node: Node, key: str) -> Iterator[str]:
    value = node["attributes"][key]
    found = [n["attributes"][key] for n in nodes if key in n["attributes"]]
    what = f"{who(node)}: attribute {key!r} is a tensor"
    if value["dtype"] not in TENSOR_DTYPES:
        yield f"{what} of {value['dtype']}, not supported: {', '.join(TENSOR_DTYPES)} are"
    elif value["value"] is None:
        yield (f"{what} of {math.prod(value['shape'])} elements, or in another file: declare it by hand, with "
               "Attribute(kind='tensor'), and give a model a smaller one")  # fmt: skip
    elif len({(v["dtype"], len(v["shape"])) for v in found if v["kind"] == "tensor"}) > 1:
        yield f"{what} of {value['dtype']} and rank {len(value['shape'])}, and elsewhere of another dtype or rank"
    elif len(found) < len(nodes):
        yield f"{what} that other nodes leave out, and each node must have it: make it an input"


def refused_mixture(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the inputs and outputs whose dtype differs between nodes, and not in the way of the first input."""
    first = dtypes_of(nodes, "inputs", 0)
    for side in ("inputs", "outputs"):
        for index in range(max(len(n[side]) for n in nodes)):
            found = dtypes_of(nodes, side, index)
            clash = [(a, b) for a, b in zip(first, found, strict=True) if a and b and a != b]
            if len({f for f in found if f}) > 1 and clash:
                dtypes = " or ".join(sorted({f for f in found if f}))
                yield f"{side[:-1]} {index} is {dtypes}, and not as the first input is: declare it by hand"


_LARGE = 1000  # elements of an output, from which on a placeholder makes another size


def by_operator(described: Mapping[str, Any], shown: str, *, op_type: str = "") -> dict[str, list[Node]]:
    """Return the nodes of each custom operator by ``domain::OpType``. Raises UsageError if there is none."""
    if why := described.get("error"):
        raise UsageError(f"{shown}: no model of ONNX can be read: {why}")
    nodes: dict[str, list[Node]] = {}
    for node in described["nodes"]:
        nodes.setdefault(f"{node['domain']}::{node['op_type']}", []).append(node)
    misplaced = [n for n in described["misplaced"] if op_type in ("", n)]
    if misplaced and not (nodes and not op_type):
        raise UsageError(
            f"{shown}: {', '.join(misplaced)}: ONNX has no such operator, and the node is in ONNX's own domain, where "
            "opmatrix declares none. Set node.domain to one of your own, and import it: "
            "model.opset_import.append(onnx.helper.make_opsetid('my.domain', 1))"
        )
    if not nodes:
        more = f"; functions of its own: {', '.join(described['functions'])}" if described["functions"] else ""
        domains = ", ".join(repr(d or "ai.onnx") for d in described["domains"])
        raise UsageError(
            f"{shown}: every node is known: ONNX's own, ONNX Runtime's, or a function in the model (its domains: "
            f"{domains}{more}). There is nothing to declare."
        )
    if op_type:
        chosen = {k: v for k, v in nodes.items() if op_type in (k, k.rpartition("::")[2])}
        if not chosen:
            near = did_you_mean(op_type, [*nodes, *(k.rpartition("::")[2] for k in nodes)])
            raise UsageError(f"{shown}: no unknown node {op_type!r}, there is: {', '.join(nodes)}{near}")
        return chosen
    return nodes


def from_nodes(nodes: Sequence[Node], *, shown: str, name: str = "", used: Used | None = None) -> Draft:
    """Return one operator without torch, from its nodes. Raises UsageError with everything that is undeclarable.

    No part has a name in `used`, by default those that the generated code of the operator uses.
    """
    first = nodes[0]
    requested, free = name, used or NOTHING
    name = free.for_operator(requested, first["op_type"])
    qualified = _qualified(first)
    if wrong := [*dict.fromkeys(refused(nodes))]:
        raise UsageError("\n".join([f"{shown}: {qualified} cannot be declared:", *(f"  {why}" for why in wrong)]))
    types, declared = _types(nodes)
    taken = {*types, name}
    attributes, guessed = _attributes(nodes, taken, free)
    inputs = tuple(_inputs(nodes, declared["inputs"], taken, free))
    outputs: list[Output] = []
    sizes: dict[str, tuple[int, ...]] = {}
    for index, type_ in enumerate(declared["outputs"]):
        parts = parts_of(nodes, "outputs", index)
        output = _name(parts, f"y{index}" if len(declared["outputs"]) > 1 else "y", taken, free)
        shape = _shape_rule(nodes, inputs, index, type_)
        if not all(parts) and not isinstance(shape, SameAs):
            shape = shape_rule(inputs, type_)
        if not isinstance(shape, SameAs):
            sizes[output] = _sizes(nodes, index)
        outputs.append(Output(name=output, type=type_, shape=shape, optional=not all(parts), doc=_doc(parts)))
    spec = OpSpec(
        name=name,
        summary=SUMMARY,
        torch=None,
        onnx=OnnxOp(domain=first["domain"], op_type=first["op_type"], versions=_versions(first)),
        types=types,
        inputs=inputs,
        attributes=attributes,
        outputs=tuple(outputs),
        tolerances={},
    )
    if used is None:
        marked, names = free_names.marked_nodes(spec)
        return from_nodes(nodes, shown=shown, name=requested, used=free_names.names_in_code([marked], names))
    given = {a.name: first["attributes"].get(onnx_name(a)) for a in attributes}
    values = {name: _value(one["value"], one.get("dtype")) for name, one in given.items() if one}
    draft = Draft(
        spec=spec,
        notes=tuple(_notes(nodes, guessed)),
        origin=f"declared from {many(len(nodes), 'node')} of {shown}",
        attributes=values,
        guessed=guessed,
        seen=_seen(spec, first, values),
        sizes=sizes,
    )
    return finished(draft)


def _shape_rule(
    nodes: Sequence[Node], inputs: Sequence[Input], index: int, declared: str
) -> SameAs | Dims | FromKernel:
    """Return a rule that the shapes in the model obey. One that the model does not tell is that of a placeholder."""
    found = [(n, part["shape"]) for n, part in zip(nodes, parts_of(nodes, "outputs", index), strict=True) if part]
    required = [(k, i) for k, i in enumerate(inputs) if is_required(i)]
    unknown = any(n["inputs"][k]["shape"] is None for n, _ in found for k, _ in required)
    if unknown or any(shape is None for _, shape in found) or len({len(shape) for _, shape in found}) != 1:
        return shape_rule(inputs, declared)
    same = [i for k, i in required if all(n["inputs"][k]["shape"] == shape for n, shape in found)]
    if same:
        return shape_rule(same, declared)
    rank = len(found[0][1])
    return FromKernel(rank=rank) if rank else Dims(dims=())


def _sizes(nodes: Sequence[Node], index: int) -> tuple[int, ...]:
    """Return the sizes that a placeholder gives an output: those of the model, 1 for an unknown one."""
    shape = next(part["shape"] for part in parts_of(nodes, "outputs", index) if part)
    sizes = tuple(d if isinstance(d, int) and d >= 0 else 1 for d in shape)
    return sizes if math.prod(sizes) <= _LARGE else (1,) * len(sizes)


def _versions(node: Node) -> tuple[int, ...]:
    """Return the versions of the domain that models may import: 1, and the version that this model imports."""
    return (1, node["imported"]) if node["imported"] > 1 else (1,)


def from_nodes_and_schema(nodes: Sequence[Node], schema: str, *, shown: str, name: str = "") -> Draft:
    """Return one operator with `schema` and the op type of `nodes`. Raises UsageError if a node does not fit it."""
    first = nodes[0]
    draft = from_torch_schema.from_schema(schema, domain=first["domain"], name=name, op_type=first["op_type"])
    spec = replace(draft.spec, onnx=replace(draft.spec.onnx, versions=_versions(first)))
    wrong: list[str] = []
    variadic = any(i.variadic for i in spec.inputs)
    most, least = len(spec.inputs), len(sure_inputs(spec))
    for node in nodes:
        wrong += refused_dtypes(node)
        found = len(node["inputs"])
        if found < least or (found > most and not variadic):
            allowed = f"{least} to {most}" if most > least else str(least)
            wrong.append(f"{who(node)} has {found} inputs, the schema {allowed}")
        if len(node["outputs"]) > len(spec.outputs) and not variadic_output(spec):
            wrong.append(f"{who(node)} has {len(node['outputs'])} outputs, the schema {len(spec.outputs)}")
        declared = {onnx_name(a): a for a in spec.attributes}
        for key, value in node["attributes"].items():
            kind = value["kind"]
            if key not in declared:
                wrong.append(f"{who(node)} has an attribute {key!r}, the schema: {', '.join(declared) or 'none'}"
                             f"{did_you_mean(key, declared)}")  # fmt: skip
            elif kind != ("int" if declared[key].kind == "bool" else declared[key].kind):
                wrong.append(f"{who(node)} has {key!r} as {kind}, the schema as {declared[key].kind}")
    if wrong:
        known = f"{shown}: the schema does not fit {first['domain']}::{first['op_type']}:"
        raise UsageError("\n".join([known, *(f"  {w}" for w in dict.fromkeys(wrong))]))
    if mixed := [*refused_mixture(nodes)]:
        raise UsageError("\n".join([f"{shown}: {_qualified(first)} cannot be declared:", *(f"  {m}" for m in mixed)]))
    return finished(replace(draft, spec=_with_types(spec, nodes)))


def _qualified(node: Node) -> str:
    return f"{node['domain']}::{node['op_type']}"


def _with_types(spec: OpSpec, nodes: Sequence[Node]) -> OpSpec:
    """Return the declaration with the dtypes of the model in place of those that a schema does not say."""
    (variable,), (types, declared) = spec.types, _types(nodes)

    def of(side: str, index: int, old: str) -> str:
        new = declared[side][index] if index < len(declared[side]) else old
        return variable if new == "T" else new

    inputs = tuple(replace(part, type=of("inputs", n, part.type)) for n, part in enumerate(spec.inputs))
    outputs = []
    for index, part in enumerate(spec.outputs):
        new = of("outputs", index, part.type)
        # A placeholder copies an input of the same type.
        shape = part.shape if (new == part.type and inputs == spec.inputs) or part.writes else shape_rule(inputs, new)
        outputs.append(replace(part, type=new, shape=shape))
    return replace(spec, types={variable: types["T"]}, inputs=inputs, outputs=tuple(outputs))


def _types(nodes: Sequence[Node]) -> tuple[dict[str, tuple[DType, ...]], dict[str, list[str]]]:
    """Return T, of the first input, and the declared type of each input and output: T, or another dtype."""
    seen = sorted({d for d in dtypes_of(nodes, "inputs", 0) if d}, key=DTYPES.index)
    types: dict[str, tuple[DType, ...]] = {"T": tuple(seen) or USUAL_DTYPES}  # type: ignore[arg-type]  # all in DTYPES
    declared: dict[str, list[str]] = {}
    for side in ("inputs", "outputs"):
        declared[side] = []
        for index in range(max(len(n[side]) for n in nodes)):
            own = {d for d in dtypes_of(nodes, side, index) if d}
            declared[side].append("T" if own <= set(types["T"]) else next(iter(own)))
    return types, declared


def _inputs(nodes: Sequence[Node], declared: Sequence[str], taken: set[str], used: Used) -> Iterator[Input]:
    for index, type_ in enumerate(declared):
        parts = parts_of(nodes, "inputs", index)
        name = _name(parts, f"x{index}" if index else "x", taken, used)
        yield Input(name=name, type=type_, optional=not all(parts), doc=_doc(parts))


def _name(parts: Sequence[Value | None], other: str, taken: set[str], used: Used) -> str:
    """Take a name: the last part of a value's name if it is a word, such as ``weight``, else `other`; or one that is
    made of it if generated code or another part has it."""
    last = re.split(r"[./:]", next((part["name"] for part in parts if part), ""))[-1]
    is_word = re.fullmatch(r"[a-z][a-z_]*", last) and _is_allowed(last) and last not in ("input", "output")
    name = unused(wanted := last if is_word else other, taken)
    taken.add(name := used.free(wanted, taken) if name in used else name)
    return name


def _is_allowed(name: str) -> bool:
    return is_variable(name) and name not in TAKEN and not is_reserved(name)


def _doc(parts: Sequence[Value | None]) -> str:
    shapes = [part["shape"] for part in parts if part and part["shape"] is not None]
    known = [f"({', '.join('?' if d is None else str(d) for d in s)}{',' * (len(s) == 1)})" for s in shapes]
    return f"TODO; in the model of shape {' or '.join(dict.fromkeys(known))}" if known else "TODO"


def _attributes(nodes: Sequence[Node], taken: set[str], used: Used) -> tuple[tuple[Attribute, ...], tuple[str, ...]]:
    """Return the attributes, those of all nodes first, and the names of the others, whose default is unknown."""
    kinds = {key: value["kind"] for node in nodes for key, value in node["attributes"].items()}
    always = [key for key in kinds if all(key in n["attributes"] for n in nodes)]
    guessed = tuple(key for key in kinds if key not in always)
    found = []
    for key in (*always, *guessed):
        default = ZEROS[kinds[key]] if key in guessed else None
        usable = _is_allowed(key) and key not in taken and key not in used
        taken.add(name := key if usable else used.free(key, taken))
        onnx_name = None if usable else key
        tensor: dict[str, Any] = {}
        if kinds[key] == "tensor":  # its sizes are None where they differ between nodes
            values = [node["attributes"][key] for node in nodes]
            sizes = [{*of_axis} for of_axis in zip(*(value["shape"] for value in values), strict=True)]
            tensor = {"type": values[0]["dtype"], "dims": tuple(min(s) if len(s) == 1 else None for s in sizes)}
        found.append(Attribute(name=name, kind=kinds[key], default=default, onnx_name=onnx_name, doc="TODO", **tensor))
    return tuple(found), guessed


def _value(value: Any, dtype: str | None) -> Any:
    """Return the value of an attribute in tuples; a float, unless it is a double, as the shortest decimal that rounds
    to the same float32: 0.1 for 0.10000000149."""
    if isinstance(value, list):
        return tuple(_value(one, dtype) for one in value)
    if dtype == "float64" or not isinstance(value, float):
        return value
    return next((s for digits in range(1, 10) if to_float32(s := float(f"{value:.{digits}g}")) == value), value)


def _seen(spec: OpSpec, node: Node, values: Mapping[str, AttributeValue]) -> Model | None:
    """Return a model like the first node, with 2 for unknown sizes; None if a rank is unknown or a size impossible."""
    inputs: dict[str, Random] = {}
    for part, found in zip(spec.inputs, (*node["inputs"], *[None] * len(spec.inputs)), strict=False):
        if found is None:
            continue
        if found["shape"] is None:
            return None
        inputs[part.name] = Random(shape=tuple(d if isinstance(d, int) else 2 for d in found["shape"]))
    dtype = node["inputs"][0]["dtype"] or USUAL_DTYPES[0]
    shapes = [tensor.shape for tensor in inputs.values()]
    if sum(map(math.prod, shapes)) > 1_000_000 or any(size < 0 for shape in shapes for size in shape):
        return None
    return Model(
        name="seen",
        types=dict.fromkeys(spec.types, dtype),
        attributes=dict(values),
        absent=tuple(o.name for n, o in enumerate(spec.outputs) if not any(parts_of([node], "outputs", n))),
        cases=(Case(name="seen", inputs=dict(inputs)),),
        domain_version=spec.onnx.versions[-1],
    )


def _notes(nodes: Sequence[Node], guessed: Sequence[str]) -> Iterator[str]:
    if guessed:
        yield f"{', '.join(guessed)}: left out by some nodes, and nothing defines what that means: write the default"
    if not any(d for d in dtypes_of(nodes, "inputs", 0)):
        yield "the dtype of the first input is not in the model: float32 and float64 are declared"
