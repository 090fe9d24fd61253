"""Nodes of a model that nobody has declared, as operators of their own. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from opmatrix.declaration.torch_signature import DTYPES, to_float32
from opmatrix.declaration.validation import RESERVED
from opmatrix.declaration.validation.operator import CPP_KEYWORDS, TAKEN
from opmatrix.errors import UsageError, did_you_mean
from opmatrix.scaffold import from_torch_schema
from opmatrix.scaffold.draft import (
    FLOATS,
    VALUES,
    Draft,
    checked,
    fresh,
    is_required,
    operator_name,
    shape_rule,
    tolerances,
)
from opmatrix.spec import (
    Attribute,
    AttributeValue,
    Case,
    DType,
    Input,
    Model,
    OnnxOp,
    OpSpec,
    Output,
    Random,
    given,
    shape_of,
)

Node = Mapping[str, Any]
_ZEROS: Mapping[str, AttributeValue] = {"float": 0.0, "int": 0, "string": "", "floats": (), "ints": ()}


def by_operator(found: Mapping[str, Any], shown: str, *, op_type: str = "") -> dict[str, list[Node]]:
    """Return the nodes of each unknown operator, by ``domain::OpType``. Raises UsageError where there is none."""
    if why := found.get("error"):
        raise UsageError(f"{shown}: no model of ONNX can be read: {why}")
    nodes: dict[str, list[Node]] = {}
    for node in found["nodes"]:
        nodes.setdefault(f"{node['domain']}::{node['op_type']}", []).append(node)
    if not nodes:
        more = f"; functions of its own: {', '.join(found['functions'])}" if found["functions"] else ""
        domains = ", ".join(repr(d or "ai.onnx") for d in found["domains"])
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


def from_nodes(nodes: Sequence[Node], *, shown: str, name: str = "") -> Draft:
    """Return one operator that exists in ONNX alone, from all of its nodes in a model.

    Raises UsageError with all that cannot be declared.
    """
    first = nodes[0]
    qualified = f"{first['domain']}::{first['op_type']}"
    if refused := [*dict.fromkeys(_refused(nodes))]:
        raise UsageError("\n".join([f"{shown}: {qualified} cannot be declared:", *(f"  {why}" for why in refused)]))
    types, declared = _types(nodes)
    taken: set[str] = set(types) | {name or operator_name(first["op_type"])}
    attributes, guessed = _attributes(nodes, taken)
    inputs = tuple(_inputs(nodes, declared["inputs"], taken))
    outputs = []
    for index, type_ in enumerate(declared["outputs"]):
        taken.add(output := fresh(f"y{index}" if len(declared["outputs"]) > 1 else "y", taken))
        doc = _doc(nodes, "outputs", index)
        outputs.append(Output(name=output, type=type_, shape=shape_rule(inputs, type_), doc=doc))
    spec = OpSpec(
        name=name or operator_name(first["op_type"]),
        summary="FILL IN: what it computes, in one sentence.",
        torch=None,
        onnx=OnnxOp(domain=first["domain"], op_type=first["op_type"], versions=_versions(first)),
        types=types,
        inputs=inputs,
        attributes=attributes,
        outputs=tuple(outputs),
        tolerances={"custom": tolerances(types, outputs)},
    )
    values = {a.name: v for a in attributes for v in [_value(first, a)] if v is not None}
    draft = Draft(
        spec=spec,
        notes=tuple(_notes(nodes, guessed)),
        origin=f"declared from {len(nodes)} node{'s' * (len(nodes) > 1)} of {shown}",
        attributes=values,
        guessed=guessed,
        seen=_seen(spec, first, values),
    )
    return checked(draft)


def _versions(node: Node) -> tuple[int, ...]:
    """Return the versions of the domain that a model may import: this model's, and the one that others begin with."""
    return (1, node["imported"]) if node["imported"] > 1 else (1,)


def from_nodes_and_schema(nodes: Sequence[Node], schema: str, *, shown: str, name: str = "") -> Draft:
    """Return one operator with the torch schema `schema` and the node of a model on ONNX's side.

    Raises UsageError where both do not fit.
    """
    first = nodes[0]
    draft = from_torch_schema.from_schema(schema, domain=first["domain"], name=name, op_type=first["op_type"])
    spec, wrong = replace(draft.spec, onnx=replace(draft.spec.onnx, versions=_versions(first))), []
    variadic = any(i.variadic for i in spec.inputs)
    most, least = len(spec.inputs), len([*filter(is_required, spec.inputs)])
    for node in nodes:
        found = len(node["inputs"])
        if found < least or (found > most and not variadic):
            wrong.append(
                f"{_who(node)} has {found} inputs, the schema {least}" + (f" to {most}" if most > least else "")
            )
        if len(node["outputs"]) > len(spec.outputs):
            wrong.append(f"{_who(node)} has {len(node['outputs'])} outputs, the schema {len(spec.outputs)}")
        declared = {a.name: a for a in spec.attributes}
        for key, value in node["attributes"].items():
            kind = value["kind"]
            if key not in declared:
                wrong.append(f"{_who(node)} has an attribute {key!r}, the schema: {', '.join(declared) or 'none'}"
                             f"{did_you_mean(key, declared)}")  # fmt: skip
            elif kind != ("int" if declared[key].kind == "bool" else declared[key].kind):
                wrong.append(f"{_who(node)} has {key!r} as {kind}, the schema as {declared[key].kind}")
    if wrong:
        known = f"{shown}: the schema does not fit {first['domain']}::{first['op_type']}:"
        raise UsageError("\n".join([known, *(f"  {w}" for w in dict.fromkeys(wrong))]))
    return replace(draft, spec=spec)


def _who(node: Node) -> str:
    return f"node {node['name']!r}" if node["name"] else f"the node that gives {node['outputs'][0]['name']!r}"


def _refused(nodes: Sequence[Node]) -> Iterator[str]:
    kinds: dict[str, str] = {}
    for node in nodes:
        for part in (*node["inputs"], *node["outputs"]):
            dtype = part and part["dtype"]
            if dtype and dtype not in DTYPES:
                yield f"{_who(node)}: {part['name']!r} is {dtype}, which no operator of ours takes"
            elif dtype in ("float16", "bfloat16"):
                yield f"{_who(node)}: {part['name']!r} is {dtype}, not supported yet: cast it to float32 and back"
            elif dtype == "string":
                yield f"{_who(node)}: {part['name']!r} holds texts, not supported yet: give their codes as int64"
        for key, value in node["attributes"].items():
            if value["kind"] not in VALUES:
                what = {"tensor": "make it an input", "strings": "part a string in the kernel"}.get(
                    value["kind"], "leave it out"
                )
                yield f"{_who(node)}: attribute {key!r} is of the kind {value['kind']}, not supported: {what}"
            elif kinds.setdefault(key, value["kind"]) != value["kind"]:
                yield f"{_who(node)}: attribute {key!r} is of the kind {value['kind']}, elsewhere of {kinds[key]}"
            elif not _identifier(key):
                yield f"{_who(node)}: attribute {key!r} is no name that Python, C++ and the generated code can have"
        if not node["inputs"] or node["inputs"][0] is None:
            yield f"{_who(node)} has no first input, and one is needed that is always there"
    if len({len(n["outputs"]) for n in nodes}) > 1:
        yield "its nodes have different numbers of outputs, and an operator always gives all of them"
    yield from _mixed(nodes)


def _mixed(nodes: Sequence[Node]) -> Iterator[str]:
    """Yield the parts whose dtype differs between nodes, but not as that of the first input does."""
    first = _dtypes(nodes, "inputs", 0)
    for side in ("inputs", "outputs"):
        for index in range(max(len(n[side]) for n in nodes)):
            found = _dtypes(nodes, side, index)
            clash = [(a, b) for a, b in zip(first, found, strict=True) if a and b and a != b]
            if len({f for f in found if f}) > 1 and clash:
                dtypes = " or ".join(sorted({f for f in found if f}))
                yield f"{side[:-1]} {index} is {dtypes}, and not as the first input is: declare it by hand"


def _dtypes(nodes: Sequence[Node], side: str, index: int) -> list[str | None]:
    parts = [n[side][index] if index < len(n[side]) else None for n in nodes]
    return [p["dtype"] if p else None for p in parts]


def _types(nodes: Sequence[Node]) -> tuple[dict[str, tuple[DType, ...]], dict[str, list[str]]]:
    """Return the type variables, one or none, and the declared type of every input and output.

    What has the dtypes of the first input, or an unknown one, goes with it.
    """
    seen = sorted({d for d in _dtypes(nodes, "inputs", 0) if d}, key=DTYPES.index)
    types: dict[str, tuple[DType, ...]] = {"T": tuple(seen) or FLOATS}  # type: ignore[arg-type]
    declared: dict[str, list[str]] = {}
    for side in ("inputs", "outputs"):
        declared[side] = []
        for index in range(max(len(n[side]) for n in nodes)):
            own = {d for d in _dtypes(nodes, side, index) if d}
            declared[side].append("T" if own <= set(types["T"]) else next(iter(own)))
    return types, declared


def _inputs(nodes: Sequence[Node], declared: Sequence[str], taken: set[str]) -> Iterator[Input]:
    for index, type_ in enumerate(declared):
        everywhere = all(index < len(n["inputs"]) and n["inputs"][index] for n in nodes)
        names = [n["inputs"][index]["name"] for n in nodes if index < len(n["inputs"]) and n["inputs"][index]]
        taken.add(name := fresh(_named(names[0] if names else "", index), taken))
        yield Input(name=name, type=type_, optional=not everywhere, doc=_doc(nodes, "inputs", index))


def _named(value: str, index: int) -> str:
    """Return the last part of a value's name where it says something, such as ``weight``, else ``x2``."""
    last = re.split(r"[./:]", value)[-1]
    speaking = re.fullmatch(r"[a-z][a-z_]*", last) and _identifier(last) and last not in ("input", "output")
    return last if speaking else f"x{index}" if index else "x"


def _identifier(name: str) -> bool:
    reserved = any(name in names for names in RESERVED.values())
    return name.isidentifier() and name not in CPP_KEYWORDS and name not in TAKEN and not reserved


def _doc(nodes: Sequence[Node], side: str, index: int) -> str:
    shapes = [n[side][index]["shape"] for n in nodes if index < len(n[side]) and n[side][index]]
    known = [
        "(" + ", ".join("?" if d is None else str(d) for d in s) + ("," if len(s) == 1 else "") + ")"
        for s in shapes
        if s is not None
    ]
    return f"FILL IN; in the model of shape {' or '.join(dict.fromkeys(known))}" if known else "FILL IN"


def _attributes(nodes: Sequence[Node], taken: set[str]) -> tuple[tuple[Attribute, ...], tuple[str, ...]]:
    """Return the attributes, those that every node has first; and those whose default nobody has told."""
    kinds = {key: value["kind"] for node in nodes for key, value in node["attributes"].items()}
    always = [key for key in kinds if all(key in n["attributes"] for n in nodes)]
    guessed = tuple(key for key in kinds if key not in always)
    found = []
    for key in (*always, *guessed):
        default = _ZEROS[kinds[key]] if key in guessed else None
        found.append(Attribute(name=key, kind=kinds[key], default=default, doc="FILL IN"))
        taken.add(key)
    return tuple(found), guessed


def _value(node: Node, attribute: Attribute) -> AttributeValue | None:
    value = node["attributes"].get(attribute.name, {}).get("value")
    return tuple(map(_shortest, value)) if isinstance(value, list) else _shortest(value)


def _shortest(value: Any) -> Any:
    """Return the float with the fewest digits that is the same float32: 0.1 for 0.10000000149."""
    if not isinstance(value, float):
        return value
    return next((s for digits in range(1, 10) if to_float32(s := float(f"{value:.{digits}g}")) == value), value)


def _seen(spec: OpSpec, node: Node, values: Mapping[str, AttributeValue]) -> Model | None:
    """Return a model as the first node is, with 2 for a size that is not known; None where a rank is not known."""
    inputs: dict[str, Random] = {}
    for part, found in zip(spec.inputs, (*node["inputs"], *[None] * len(spec.inputs)), strict=False):
        if found is None:
            continue
        if found["shape"] is None:
            return None
        inputs[part.name] = Random(shape=tuple(d if isinstance(d, int) else 2 for d in found["shape"]))
    dtype = node["inputs"][0]["dtype"] or FLOATS[0]
    case = Case(name="seen", inputs=dict(inputs))
    if sum(math.prod(shape_of(t)) for i in spec.inputs for t in given(case, i.name)) > 1_000_000:
        return None
    return Model(
        name="seen", types=dict.fromkeys(spec.types, dtype), attributes=dict(values), cases=(case,),
        domain_version=spec.onnx.versions[-1],
    )  # fmt: skip


def _notes(nodes: Sequence[Node], guessed: Sequence[str]) -> Iterator[str]:
    if guessed:
        yield f"{', '.join(guessed)}: left out by some nodes, and nothing says what that means: FILL IN the default"
    if not any(d for d in _dtypes(nodes, "inputs", 0)):
        yield "the model does not tell the dtype of the first input: float32 and float64 are declared"
