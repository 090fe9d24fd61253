"""Which functions of a file compute the same when two of their arguments are exchanged, as add(x, y) does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opmatrix.mutation.cpp_change import Kernel, parameters
from opmatrix.mutation.syntax import arguments, called, declared, field, name_of, operator, walk

if TYPE_CHECKING:
    from tree_sitter import Node

# Of these, the first two arguments can be exchanged.
_SYMMETRIC = ("__builtin_add_overflow", "__builtin_mul_overflow", "hypot")


def is_symmetric(kernel: Kernel, name: str, first: int) -> bool:
    """Return whether a function computes the same with its arguments `first` and `first` + 1 exchanged: each definition
    of it in the file does, apart from the order of sums and products."""
    if name in _SYMMETRIC:
        return first == 0
    found = [n for n in walk(kernel.code.root) if n.type == "function_definition" and _name(n) == name]
    return bool(found) and all(_same(kernel, definition, first) for definition in found)


def _name(definition: Node) -> str:
    name = declared(field(definition, "declarator"))
    return name_of(name) if name is not None else ""


def _same(kernel: Kernel, definition: Node, first: int) -> bool:
    names = [*parameters(definition)]
    body = definition.child_by_field_name("body")
    if body is None or len(names) < first + 2:
        return False
    one, other = names[first : first + 2]
    return _text(kernel, body, {}) == _text(kernel, body, {one: other, other: one})


def _text(kernel: Kernel, node: Node, renamed: Mapping[str, str]) -> str:
    """Return code with other names, and with the operands of sums and products in an order of their own."""
    if node.type == "comment":
        return ""
    if node.type == "identifier":
        return renamed.get(name_of(node), name_of(node))
    parts = [_text(kernel, child, renamed) for child in node.children]
    if node.type == "binary_expression" and operator(node) in ("+", "*"):
        parts.sort()
    if called(node) in _SYMMETRIC:
        texts = [_text(kernel, part, renamed) for part in arguments(node)]
        parts = [called(node), *sorted(texts[:2]), *texts[2:]]
    return f"({' '.join(parts)})" if parts else kernel.text(node)
