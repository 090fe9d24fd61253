"""Nodes as onnx_process describes them, and why one cannot be declared. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opmatrix.declaration.torch_signature import DTYPES
from opmatrix.declaration.validation.mistake import WHY_NO_DTYPE
from opmatrix.declaration.validation.operator import IDENTIFIER, TENSOR_DTYPES
from opmatrix.spec import AttributeValue

Node = Mapping[str, Any]
ZEROS: Mapping[str, AttributeValue] = {
    "float": 0.0, "int": 0, "string": "", "floats": (), "ints": (), "strings": (),
}  # fmt: skip


def parts_of(nodes: Sequence[Node], side: str, index: int) -> list[Mapping[str, Any] | None]:
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
