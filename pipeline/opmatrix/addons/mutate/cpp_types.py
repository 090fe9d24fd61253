"""What the operators of mutation of a kernel read: types of names and expressions, as far as the text shows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from opmatrix.addons.mutate.cpp import (
    Code,
    ancestors,
    arguments,
    called,
    declared,
    field,
    function_of,
    name_of,
    operator,
    walk,
)

if TYPE_CHECKING:
    from tree_sitter import Node


SIZE = "std::int64_t"
FLOATING = ("double", "float", "T")
_QUALIFIERS = re.compile(r"\b(?:const|constexpr|static|inline|volatile|__restrict)\b")
_VIEW = re.compile(r"(?:TensorView|OptionalView)<(.+)>")
_DECLARATIONS = ("declaration", "parameter_declaration", "for_range_loop", "field_declaration")


def plain(text: str) -> str:
    """Return a type without qualifiers, references and spaces."""
    return re.sub(r"\s+|&", "", _QUALIFIERS.sub("", text))


@dataclass(frozen=True)
class Types:
    """The types in one file."""

    code: Code

    @cached_property
    def _names(self) -> Mapping[tuple[int, str], str]:
        """The type of each name, by the function around it (0: none); "" where one function has it with two types."""
        types: dict[tuple[int, str], str] = {}
        waiting = [self.code.root]
        while waiting:
            node = waiting.pop()
            waiting += node.named_children
            if node.type in _DECLARATIONS and (base := node.child_by_field_name("type")) is not None:
                function = function_of(node)
                for part in node.children_by_field_name("declarator"):
                    if (name := declared(part)) is not None:
                        of = self._declared(plain(self.code.text(base)), part)
                        key = (function.start_byte if function else 0, name_of(name))
                        types[key] = of if types.get(key, of) == of else ""
        return types

    def _declared(self, base: str, declarator: Node) -> str:
        """Return a type with a star for each pointer and array of its declarator."""
        node: Node | None = declarator
        stars = ""
        while node is not None:
            stars += "*" * (node.type in ("pointer_declarator", "array_declarator"))
            if node.type == "function_declarator":
                return ""
            if node.type == "init_declarator" and base == "auto" and (value := node.child_by_field_name("value")):
                return self._of_call(value) + stars  # of a name it would be that of a declaration read later
            node = node.child_by_field_name("declarator")
        return "" if base == "auto" else base + stars

    @cached_property
    def functions(self) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """The result and the parameters of each function that the file defines once."""
        found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
        waiting = [self.code.root]
        while waiting:
            node = waiting.pop()
            waiting += node.named_children
            if node.type == "function_definition" and (base := node.child_by_field_name("type")) is not None:
                signature = next((n for n in node.named_children if n.type == "function_declarator"), None)
                name = None if signature is None else declared(signature)
                if signature is not None and name is not None:
                    parts = (n for n in field(signature, "parameters").named_children if "parameter" in n.type)
                    of = tuple(self._declared(plain(self.code.text(field(p, "type"))),
                                              p.child_by_field_name("declarator") or p) for p in parts)  # fmt: skip
                    found.setdefault(name_of(name), []).append((plain(self.code.text(base)), of))
        return {name: signatures[0] for name, signatures in found.items() if len(signatures) == 1}

    def named(self, node: Node, name: str) -> str:
        """Return the type of a name at a node."""
        function = function_of(node)
        keys = ((function.start_byte if function else 0, name), (0, name))
        return next((self._names[key] for key in keys if key in self._names), "")

    def element(self, node: Node) -> str:
        """Return what the name of a tensor has as elements; "" for what is no tensor."""
        match = _VIEW.fullmatch(self.named(node, name_of(node))) if node.type == "identifier" else None
        return match[1] if match else ""

    def of(self, node: Node) -> str:
        """Return the type of an expression."""
        if node.type == "identifier":
            return self.named(node, name_of(node))
        if node.type == "field_expression":
            owner, name = field(node, "argument"), name_of(field(node, "field"))
            return f"{element}*" if name == "data" and (element := self.element(owner)) else self.named(node, name)
        if node.type == "subscript_expression":
            of = self.of(field(node, "argument"))
            return of[:-1] if of.endswith("*") else ""
        if node.type == "binary_expression":
            return self._of_binary(node)
        if node.type == "conditional_expression":
            return self.of(field(node, "consequence")) or self.of(field(node, "alternative"))
        return self._of_call(node)

    def _of_binary(self, node: Node) -> str:
        if operator(node) not in ("+", "-", "*", "/", "%"):
            return ""
        left, right = field(node, "left"), field(node, "right")
        if right.type == "number_literal":
            return self.of(left)
        if left.type == "number_literal":
            return self.of(right)
        first, second = self.of(left), self.of(right)
        return first if first == second or first.endswith("*") else ""

    def _of_call(self, node: Node) -> str:
        if node.type != "call_expression":
            return ""
        function, name = field(node, "function"), called(node)
        if function.type == "field_expression":
            return SIZE if name_of(field(function, "field")) in ("size", "numel") else ""
        if name == "static_cast":
            return plain(self.code.text(field(function, "arguments"))[1:-1])
        if name in ("sqrt", "exp", "floor", "ceil", "fabs", "log"):
            return "double"
        return SIZE if name == "numel" else self.functions.get(name, ("", ()))[0]


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

    start: int
    end: int
    after: str


Operator = Callable[[Kernel, "Node"], Iterator[Change]]


def replaced(node: Node, after: str) -> Change:
    return Change(start=node.start_byte, end=node.end_byte, after=after)


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
