"""Mutants of what a kernel reads: index, further, ignored, size, swapped, attribute.

Mutants of what a kernel computes and keeps: result, narrow, state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from opmatrix.addons.mutate.cpp import (
    ancestors,
    arguments,
    called,
    declared,
    field,
    function_of,
    is_check,
    name_of,
    operator,
    walk,
)
from opmatrix.addons.mutate.cpp_types import (
    FLOATING,
    PARALLEL,
    SIZE,
    Change,
    Kernel,
    is_symmetric,
    parameters,
    replaced,
    written,
)

if TYPE_CHECKING:
    from tree_sitter import Node


def index(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Another element: the one before it where it is read, the next one where it is written."""
    if (at := _index(node)) is not None:
        yield from _moved(kernel, "index", at, 1 if written(node) else -1)
    elif node.type == "update_expression":
        alone = node.parent is None or node.parent.type in ("expression_statement", "for_statement")
        if not alone:
            yield replaced("index", node, kernel.text(field(node, "argument")))


def further(kernel: Kernel, node: Node) -> Iterator[Change]:
    """One element further, read or passed on as a pointer."""
    if (at := _index(node)) is not None and not written(node):
        yield from _moved(kernel, "further", at, 1)
    if node.type == "call_expression" and not is_check(node):
        for part in arguments(node):
            named = part.type in ("binary_expression", "identifier", "field_expression")
            if named and kernel.types.of(part).endswith("*"):
                yield replaced("further", part, f"{kernel.text(part)} + 1")


def _index(node: Node) -> Node | None:
    if node.type != "subscript_expression" or len(parts := field(node, "indices").named_children) != 1:
        return None
    return parts[0]


def _moved(kernel: Kernel, kind: str, at: Node, by: int) -> Iterator[Change]:
    text = kernel.text(at)
    if text.isdigit():
        if int(text) + by >= 0:
            yield replaced(kind, at, str(int(text) + by))
    else:
        yield replaced(kind, at, f"({text}) {'+' if by > 0 else '-'} 1")


def ignored(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Zero in place of an element."""
    if node.type != "subscript_expression" or written(node):
        return
    array = field(node, "argument")
    data = array.type == "field_expression" and name_of(field(array, "field")) == "data"
    if data or (array.type == "identifier" and kernel.types.of(array).endswith("*")):
        yield replaced("ignored", node, f"(decltype({kernel.text(node)} + 0)){{}}")


def size(kernel: Kernel, node: Node) -> Iterator[Change]:
    """The size of another axis; the number of elements of a tensor that may have another shape."""
    function = node.child_by_field_name("function") if node.type == "call_expression" else None
    if function is None or function.type != "field_expression":
        return
    tensor, method, parts = field(function, "argument"), name_of(field(function, "field")), arguments(node)
    if not kernel.types.element(tensor):
        return
    if method == "size" and len(parts) == 1 and (axis := kernel.text(parts[0])).isdigit():
        yield replaced("size", parts[0], str(int(axis) - 1 if int(axis) else 1))
    within = function_of(node)
    if method == "numel" and within is not None:
        shape = kernel.shapes.get(kernel.text(tensor))
        for name, other in parameters(within).items():
            known = shape is not None and kernel.shapes.get(name) == shape
            if kernel.types.named(other, name).startswith("TensorView<") and name != kernel.text(tensor) and not known:
                yield replaced("size", tensor, name)


def swapped(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Two neighbouring arguments of one type, exchanged."""
    if node.type == "initializer_list":
        parts = [n for n in node.named_children if n.type != "comment"]
    elif node.type == "call_expression" and not is_check(node) and called(node) != PARALLEL:
        parts = arguments(node)
    else:
        return
    _, known = kernel.types.functions.get(called(node), ("", ()))
    types = known if len(known) == len(parts) else tuple(kernel.types.of(part) for part in parts)
    for place, ((a, first), (b, second)) in enumerate(pairwise(zip(parts, types, strict=True))):
        if first == second != "" and not is_symmetric(kernel, called(node), place):
            between = kernel.code.data[a.end_byte : b.start_byte].decode()
            text = f"{kernel.text(b)}{between}{kernel.text(a)}"
            yield Change(kind="swapped", start=a.start_byte, end=b.end_byte, after=text)


def attribute(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A constant in place of an attribute."""
    if node.type != "identifier" or (name := name_of(node)) not in kernel.defaults or written(node):
        return
    function, parent = function_of(node), node.parent
    if function is None or parent is None or parent.child_by_field_name("declarator") == node:
        return
    if name in parameters(function) and not any(outer.type == "parameter_declaration" for outer in ancestors(node)):
        yield replaced("attribute", node, kernel.defaults[name])


_NARROWER = {"double": "float", SIZE: "std::int16_t", "std::size_t": "std::uint16_t"}


def result(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Zero in place of what an output gets, or the element of the first input at the same index."""
    if node.type != "assignment_expression" or operator(node) != "=":
        return
    left, right = field(node, "left"), field(node, "right")
    if left.type == "pointer_expression":
        yield replaced("result", right, "{}")
    if left.type != "subscript_expression":
        return
    array, function = field(left, "argument"), function_of(node)
    data = array.type == "field_expression" and name_of(field(array, "field")) == "data"
    if data or (array.type == "identifier" and kernel.types.of(array).endswith("*")):
        yield replaced("result", right, "{}")
    inputs = [n for n, p in parameters(function).items() if kernel.is_input(p)] if data and function else []
    if inputs:
        yield replaced("result", right, f"{inputs[0]}.data{kernel.text(field(left, 'indices'))}")


def narrow(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A smaller type for what is summed up, for a result, or for an element that is read."""
    base = node.child_by_field_name("type")
    if node.type in ("function_definition", "field_declaration") and base is not None:
        if kernel.text(base) == "double":
            yield replaced("narrow", base, "float")
    elif node.type == "declaration" and base is not None and (after := _NARROWER.get(kernel.text(base))):
        names = [declared(d) for d in node.children_by_field_name("declarator")]
        if any(n is not None and _accumulates(kernel, n) for n in names):
            yield replaced("narrow", base, after)
    elif called(node) == "static_cast" and len(parts := arguments(node)) == 1:
        to = field(field(node, "function"), "arguments")
        if kernel.text(to) == "<double>" and kernel.types.of(parts[0]) in FLOATING[::2]:
            yield replaced("narrow", to, "<float>")


def _accumulates(kernel: Kernel, name: Node) -> bool:
    """Return whether a variable is more than once computed from itself: no counter, no index."""
    function = function_of(name)
    for node in walk(function) if function is not None else ():
        if node.type == "assignment_expression" and operator(node) in ("+=", "-=", "*=", "/="):
            in_header = node.parent is not None and node.parent.type == "for_statement"
            if kernel.text(field(node, "left")) == name_of(name) and not in_header:
                return True
        if node.type == "pointer_expression" and kernel.text(node) == f"&{name_of(name)}":
            return True
    return False


def state(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A variable that keeps its value until the next call, and that threads share."""
    block = node.parent is not None and node.parent.type == "compound_statement"
    text = kernel.text(node)
    if node.type != "declaration" or not block or re.match(r"static\b|constexpr\b", text):
        return
    parts = node.children_by_field_name("declarator")
    values = [part.child_by_field_name("value") for part in parts]
    kinds = {n.type for value in values if value is not None for n in walk(value)}
    by_name = any(_is_reference(part) for part in parts)
    literal = text.startswith("const ") and "identifier" not in kinds
    if not literal and not by_name and "lambda_expression" not in kinds:
        yield Change(kind="state", start=node.start_byte, end=node.start_byte, after="static ")


def _is_reference(declarator: Node) -> bool:
    inner = declarator.child_by_field_name("declarator") if declarator.type == "init_declarator" else declarator
    return inner is not None and inner.type == "reference_declarator"
