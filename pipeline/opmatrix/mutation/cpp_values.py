"""Mutants of what a kernel computes and keeps: result, narrow, state."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from opmatrix.mutation.cpp_change import Change, Kernel, parameters, replaced
from opmatrix.mutation.cpp_types import FLOATING, SIZE
from opmatrix.mutation.syntax import arguments, called, declared, field, function_of, name_of, operator, walk

if TYPE_CHECKING:
    from tree_sitter import Node

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
