"""What the operators of mutation of a kernel read, and what they yield."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opmatrix.mutation.cpp_types import Types
from opmatrix.mutation.syntax import Code, ancestors, arguments, called, declared, field, name_of, operator, walk

if TYPE_CHECKING:
    from tree_sitter import Node

PARALLEL = "parallel_for"


@dataclass(frozen=True)
class Kernel:
    """A file with a kernel.

    `defaults` has a C++ value for the name of each attribute. `shapes` has a string for the name of each tensor whose
    shape is declared; tensors with equal texts have equal shapes.
    """

    code: Code
    types: Types
    defaults: Mapping[str, str]
    shapes: Mapping[str, str]

    def text(self, node: Node) -> str:
        return self.code.text(node)

    def is_input(self, name: Node) -> bool:
        """Return whether the name of a parameter is that of a required input."""
        declaration = next((n for n in ancestors(name) if n.type == "parameter_declaration"), None)
        return declaration is not None and self.text(declaration).startswith("TensorView<const ")


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another text for a place of a file."""

    kind: str
    start: int
    end: int
    after: str


Operator = Callable[[Kernel, "Node"], Iterator[Change]]


def replaced(kind: str, node: Node, after: str) -> Change:
    return Change(kind=kind, start=node.start_byte, end=node.end_byte, after=after)


def grain(node: Node) -> bool:
    """Return whether a node is in the argument of parallel_for on which no result depends: a thread's work."""
    inside = node
    for outer in ancestors(node):
        if outer.type == "call_expression" and called(outer) == PARALLEL:
            parts = arguments(outer)
            return len(parts) > 2 and parts[2].start_byte <= inside.start_byte < parts[2].end_byte
        inside = outer if outer.type != "argument_list" else inside
    return False


def only_grain(kernel: Kernel, name: str) -> bool:
    """Return whether a name is used for that alone."""
    uses = [n for n in walk(kernel.code.root) if n.type == "identifier" and name_of(n) == name]
    read = [n for n in uses if n.parent is None or n.parent.type != "init_declarator"
            or n.parent.child_by_field_name("declarator") != n]  # fmt: skip
    return bool(read) and all(grain(n) for n in read)


def written(node: Node) -> bool:
    """Return whether an expression is assigned to, or its address is taken."""
    parent = node.parent
    if parent is None:
        return False
    if parent.type == "assignment_expression":
        return bool(parent.child_by_field_name("left") == node)
    if parent.type == "pointer_expression":
        return operator(parent) == "&"
    return parent.type == "update_expression" or (parent.type == "subscript_expression" and written(parent))


def loop_of(node: Node) -> Node | None:
    """Return the for statement of which a node is the whole condition."""
    loop = node.parent
    is_condition = loop is not None and loop.type == "for_statement" and loop.child_by_field_name("condition") == node
    return loop if is_condition else None


def has_tail(loop: Node) -> bool:
    """Return whether a later loop of the same block goes on where this one ends, as behind a loop over vectors."""
    variable = left_name(loop.child_by_field_name("condition"))
    after = loop.next_named_sibling
    while after is not None and variable:
        if after.type == "for_statement" and after.child_by_field_name("initializer") is None:
            return left_name(after.child_by_field_name("condition")) == variable
        after = after.next_named_sibling
    return False


def left_name(condition: Node | None) -> str:
    """Return the first name in a comparison, such as i of ``i + 8 <= n``."""
    node = condition
    while node is not None and node.type == "binary_expression":
        node = field(node, "left")
    return name_of(node) if node is not None and node.type == "identifier" else ""


def parameters(function: Node) -> dict[str, Node]:
    """Return the parameters of a function and of its lambdas, by name."""
    declarators = (n.child_by_field_name("declarator") for n in walk(function) if n.type == "parameter_declaration")
    names = (declared(n) for n in declarators if n is not None)
    return {name_of(name): name for name in names if name is not None}
