"""C++ as a syntax tree, by tree-sitter, which only `doit mutate` needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opmatrix.basics.errors import ToolchainError

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

INSTALL = "pip install 'opmatrix[mutate]'"
# A macro ahead of a type, such as OPMATRIX_EACH_CPU, which the grammar takes for the type. A word of capitals and an
# underscore is one where another word, or an attribute, follows on the line.
_MACRO = re.compile(rb"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+(?=[ \t]+(?:\[\[|[A-Za-z_]))")
_DIRECTIVE = re.compile(rb"^[ \t]*#.*(?:\\\n.*)*", re.MULTILINE)
# What has no code that could be another: types, attributes, templates' parameters, directives.
_OTHER = re.compile(
    r"comment|preproc_.*|template_parameter_list|template_argument_list|attribute.*|static_assert_declaration"
    r"|using_declaration|alias_declaration|type_definition|type_descriptor|lambda_capture_specifier"
)
_STATEMENT = re.compile(r"\w+_statement|for_range_loop|declaration|field_declaration|field_initializer")


@dataclass(frozen=True)
class Code:
    """The text of a C++ file, and its tree."""

    data: bytes
    tree: Tree

    @property
    def root(self) -> Node:
        return self.tree.root_node

    def text(self, node: Node) -> str:
        return self.data[node.start_byte : node.end_byte].decode()


def parse(source: str) -> Code:
    """Parse C++. Raises ToolchainError where tree-sitter is not installed."""
    try:
        import tree_sitter_cpp
        from tree_sitter import Language, Parser
    except ImportError as error:
        raise ToolchainError(
            f"doit mutate: {error.name} is not installed, which reads the kernels as syntax trees. Run: {INSTALL}"
        ) from error
    data = source.encode()
    directives = [match.span() for match in _DIRECTIVE.finditer(data)]

    def blank(match: re.Match[bytes]) -> bytes:
        inside = any(start <= match.start() < end for start, end in directives)
        return match[0] if inside else b" " * len(match[0])

    return Code(data, Parser(Language(tree_sitter_cpp.language())).parse(_MACRO.sub(blank, data)))


def unparsed_lines(code: Code) -> list[int]:
    """Return the lines that the grammar does not know; nothing there is mutated."""
    waiting, found = [code.root], set()
    while waiting:
        node = waiting.pop()
        if node.type == "ERROR" or node.is_missing:
            found.add(node.start_point[0] + 1)
        waiting += [child for child in node.children if child.has_error or child.is_missing]
    return sorted(found)


def walk(node: Node) -> Iterator[Node]:
    """Yield the nodes that can be mutated, parents before children: no types, messages, directives and prefetches."""
    if node.type == "ERROR" or _OTHER.fullmatch(node.type) or is_prefetch(node):
        return
    yield node
    children = node.named_children
    if is_check(node):  # its other arguments are a message
        children = [field(node, "arguments").named_children[0]]
    for child in children:
        yield from walk(child)


def is_prefetch(node: Node) -> bool:
    """Return whether a statement only fetches memory into the cache: no result depends on it."""
    return node.type == "expression_statement" and any(called(n) == "__builtin_prefetch" for n in node.named_children)


def is_check(node: Node) -> bool:
    """Return whether a node is ``KERNEL_CHECK(condition, message...)``."""
    return called(node) == "KERNEL_CHECK" and bool(field(node, "arguments").named_children)


def called(node: Node) -> str:
    """Return the name of the function that a call names, without namespaces and template arguments; "": no call."""
    function = node.child_by_field_name("function") if node.type == "call_expression" else None
    while function is not None and function.type in ("template_function", "qualified_identifier"):
        function = function.child_by_field_name("name")
    return name_of(function) if function is not None and function.type == "identifier" else ""


def arguments(call: Node) -> list[Node]:
    return [n for n in field(call, "arguments").named_children if n.type != "comment"]


def field(node: Node, name: str) -> Node:
    """Return the child in a field that the grammar always has."""
    child = node.child_by_field_name(name)
    assert child is not None, f"{node.type} has no {name}"
    return child


def operator(node: Node) -> str:
    """Return the operator of an expression, "" where it has none."""
    child = node.child_by_field_name("operator")
    return "" if child is None else child.type


def name_of(node: Node) -> str:
    return (node.text or b"").decode()


def declared(declarator: Node) -> Node | None:
    """Return the identifier that a declarator declares."""
    node: Node | None = declarator
    while node is not None and node.type not in ("identifier", "field_identifier", "operator_name", "destructor_name"):
        inner = node.child_by_field_name("declarator") or node.child_by_field_name("name")
        node = inner or (node.named_children[-1] if node.type == "reference_declarator" else None)
    return node


def ancestors(node: Node) -> Iterator[Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def function_of(node: Node) -> Node | None:
    """Return the definition of the function that contains a node; a lambda belongs to the function around it."""
    return next((n for n in (node, *ancestors(node)) if n.type == "function_definition"), None)


def function_name(node: Node) -> str:
    """Return the name of the function that contains a node, with its class, such as ``Reader::operator[]``."""
    function = function_of(node)
    if function is None:
        return ""
    name = declared(field(function, "declarator"))
    classes = [n.child_by_field_name("name") for n in ancestors(function) if n.type.endswith("_specifier")]
    return "::".join([*(name_of(c) for c in reversed(classes) if c), name_of(name) if name else ""])


def statement_of(node: Node) -> Node:
    """Return the smallest statement or declaration that contains a node; what begins a loop belongs to the loop."""
    statement = next((n for n in (node, *ancestors(node)) if _STATEMENT.fullmatch(n.type)), node)
    loop = statement.parent
    if loop is not None and loop.type == "for_statement" and loop.child_by_field_name("initializer") == statement:
        return loop
    return statement


def context(code: Code, start: int, end: int) -> str:
    """Return the statement around a place in one line, without comments and the bodies of other statements, with ``«»``
    around the place."""
    node = code.root.descendant_for_byte_range(start, max(start, end - 1))
    assert node is not None
    cuts = [(start, start, "«"), (end, end, "»")]
    waiting = [statement := statement_of(node)]
    while waiting:
        for child in waiting.pop().children:
            body = child.type == "compound_statement" or (
                child.parent is not None and child.parent.child_by_field_name("body") == child
            )
            if child.type == "comment" or (body and not child.start_byte <= start < child.end_byte):
                cuts.append((child.start_byte, child.end_byte, "{ ... }" if body else ""))
            else:
                waiting.append(child)
    begin, finish = min(statement.start_byte, start), max(statement.end_byte, end)
    pieces, at = [], begin
    for first, last, instead in sorted(cuts, key=lambda cut: (cut[0], cut[1])):
        if first >= at or first == last:
            pieces += [code.data[at:first].decode(), instead]
            at = max(at, last)
    pieces.append(code.data[at:finish].decode())
    return " ".join("".join(pieces).split())
