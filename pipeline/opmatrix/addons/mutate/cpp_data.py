"""Mutants of what a kernel reads (index, further, ignored, size, swapped, attribute), computes and keeps (result,
narrow, state), and of its loops (bound, tail, large, thread_split)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
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
    has_tail,
    parameters,
    replaced,
    written,
)

if TYPE_CHECKING:
    from tree_sitter import Node


def index(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Another element: the one before it where it is read, the next one where it is written."""
    if (at := _index(node)) is not None:
        yield from _moved(kernel, at, 1 if written(node) else -1)
    elif node.type == "update_expression":
        alone = node.parent is None or node.parent.type in ("expression_statement", "for_statement")
        if not alone:
            yield replaced(node, kernel.text(field(node, "argument")))


def further(kernel: Kernel, node: Node) -> Iterator[Change]:
    """One element further, read or passed on as a pointer."""
    if (at := _index(node)) is not None and not written(node):
        yield from _moved(kernel, at, 1)
    if node.type == "call_expression" and not is_check(node):
        for part in arguments(node):
            named = part.type in ("binary_expression", "identifier", "field_expression")
            if named and kernel.types.of(part).endswith("*"):
                yield replaced(part, f"{kernel.text(part)} + 1")


def _index(node: Node) -> Node | None:
    if node.type != "subscript_expression" or len(parts := field(node, "indices").named_children) != 1:
        return None
    return parts[0]


def _moved(kernel: Kernel, at: Node, by: int) -> Iterator[Change]:
    text = kernel.text(at)
    if text.isdigit():
        if int(text) + by >= 0:
            yield replaced(at, str(int(text) + by))
    else:
        yield replaced(at, f"({text}) {'+' if by > 0 else '-'} 1")


def ignored(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Zero in place of an element."""
    if node.type != "subscript_expression" or written(node):
        return
    array = field(node, "argument")
    data = array.type == "field_expression" and name_of(field(array, "field")) == "data"
    if data or (array.type == "identifier" and kernel.types.of(array).endswith("*")):
        yield replaced(node, f"(decltype({kernel.text(node)} + 0)){{}}")


def size(kernel: Kernel, node: Node) -> Iterator[Change]:
    """The size of another axis; the number of elements of a tensor that may have another shape."""
    function = node.child_by_field_name("function") if node.type == "call_expression" else None
    if function is None or function.type != "field_expression":
        return
    tensor, method, parts = field(function, "argument"), name_of(field(function, "field")), arguments(node)
    if not kernel.types.element(tensor):
        return
    if method == "size" and len(parts) == 1 and (axis := kernel.text(parts[0])).isdigit():
        yield replaced(parts[0], str(int(axis) - 1 if int(axis) else 1))
    within = function_of(node)
    if method == "numel" and within is not None:
        shape = kernel.shapes.get(kernel.text(tensor))
        for name, other in parameters(within).items():
            known = shape is not None and kernel.shapes.get(name) == shape
            if kernel.types.named(other, name).startswith("TensorView<") and name != kernel.text(tensor) and not known:
                yield replaced(tensor, name)


# Of these, the first two arguments can be exchanged.
_SYMMETRIC = ("add", "mul", "__builtin_add_overflow", "__builtin_mul_overflow", "hypot")


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
        if first == second != "" and not (place == 0 and called(node) in _SYMMETRIC):
            between = kernel.code.data[a.end_byte : b.start_byte].decode()
            text = f"{kernel.text(b)}{between}{kernel.text(a)}"
            yield Change(start=a.start_byte, end=b.end_byte, after=text)


def attribute(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A constant in place of an attribute."""
    if node.type != "identifier" or (name := name_of(node)) not in kernel.defaults or written(node):
        return
    function, parent = function_of(node), node.parent
    if function is None or parent is None or parent.child_by_field_name("declarator") == node:
        return
    if name in parameters(function) and not any(outer.type == "parameter_declaration" for outer in ancestors(node)):
        yield replaced(node, kernel.defaults[name])


_NARROWER = {"double": "float", SIZE: "std::int16_t", "std::size_t": "std::uint16_t"}


def result(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Zero in place of what an output gets, or the element of the first input at the same index."""
    if node.type != "assignment_expression" or operator(node) != "=":
        return
    left, right = field(node, "left"), field(node, "right")
    if left.type == "pointer_expression":
        yield replaced(right, "{}")
    if left.type != "subscript_expression":
        return
    array, function = field(left, "argument"), function_of(node)
    data = array.type == "field_expression" and name_of(field(array, "field")) == "data"
    if data or (array.type == "identifier" and kernel.types.of(array).endswith("*")):
        yield replaced(right, "{}")
    inputs = [n for n, p in parameters(function).items() if kernel.is_input(p)] if data and function else []
    if inputs:
        yield replaced(right, f"{inputs[0]}.data{kernel.text(field(left, 'indices'))}")


def narrow(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A smaller type for what is summed up, for a result, or for an element that is read."""
    base = node.child_by_field_name("type")
    if node.type in ("function_definition", "field_declaration") and base is not None:
        if kernel.text(base) == "double":
            yield replaced(base, "float")
    elif node.type == "declaration" and base is not None and (after := _NARROWER.get(kernel.text(base))):
        names = [declared(d) for d in node.children_by_field_name("declarator")]
        if any(n is not None and _accumulates(kernel, n) for n in names):
            yield replaced(base, after)
    elif called(node) == "static_cast" and len(parts := arguments(node)) == 1:
        to = field(field(node, "function"), "arguments")
        if kernel.text(to) == "<double>" and kernel.types.of(parts[0]) in FLOATING[::2]:
            yield replaced(to, "<float>")


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
    inner = [p.child_by_field_name("declarator") if p.type == "init_declarator" else p for p in parts]
    by_name = any(part is not None and part.type == "reference_declarator" for part in inner)
    literal = text.startswith("const ") and "identifier" not in kinds
    if not literal and not by_name and "lambda_expression" not in kinds:
        yield Change(start=node.start_byte, end=node.start_byte, after="static ")


LANES = 4
"""The vectors that a kernel without a tail would have."""
LARGE = 128
"""The size above which a loop of the kind `large` does nothing more."""
_CONSTANT = re.compile(r"\d+|k[A-Z]\w*(?:\s*\*\s*k[A-Z]\w*)*")


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """A for statement that counts: ``for (begin; variable < bound; step)``."""

    variable: Node | None  # None: it goes on with a variable from before
    begin: Node | None
    comparison: str
    bound: Node
    step: Node


def _loop(node: Node) -> _Loop | None:
    if node.type != "for_statement":
        return None
    condition, step = node.child_by_field_name("condition"), node.child_by_field_name("update")
    while condition is not None and condition.type == "binary_expression" and operator(condition) == "&&":
        condition = field(condition, "right")
    if condition is None or step is None or condition.type != "binary_expression":
        return None
    first = node.child_by_field_name("initializer")
    made = None if first is None else next((n for n in first.named_children if n.type == "init_declarator"), None)
    return _Loop(
        variable=None if made is None else declared(made),
        begin=None if made is None else made.child_by_field_name("value"),
        comparison=operator(condition),
        bound=field(condition, "right"),
        step=step,
    )


def bound(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A loop that begins one later, ends one earlier or later, or leaves out every second index."""
    if (loop := _loop(node)) is None:
        return
    # One more of < is <=, a comparison; one less of a loop with a tail is done by the tail.
    more = loop.comparison in ("<=", ">") or has_tail(node)
    if loop.comparison in ("<", "<=", ">", ">="):
        yield replaced(loop.bound, f"({kernel.text(loop.bound)}) {'+' if more else '-'} 1")
    if loop.begin is not None and loop.begin.type != "initializer_list":
        yield replaced(loop.begin, f"({kernel.text(loop.begin)}) + 1")
    if loop.step.type == "update_expression":
        yield replaced(loop.step, f"{kernel.text(field(loop.step, 'argument'))} {operator(loop.step)[0]}= 2")
    elif loop.step.type == "assignment_expression":
        step = field(loop.step, "right")
        yield replaced(step, f"({kernel.text(step)}) + 1")


def tail(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A loop without its last indices: the tail itself, or what a loop over vectors leaves."""
    if (loop := _loop(node)) is None:
        return
    if node.child_by_field_name("initializer") is None:
        if not has_tail(node):
            yield replaced(field(node, "condition"), "false")
    elif _counts(kernel, loop):
        yield replaced(loop.bound, f"({kernel.text(loop.bound)}) / {LANES} * {LANES}")


def large(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A loop that is right up to a size."""
    if (loop := _loop(node)) is not None and _counts(kernel, loop):
        text = kernel.text(loop.bound)
        yield replaced(loop.bound, f"(({text}) < {LARGE} ? ({text}) : {LARGE})")


def _counts(kernel: Kernel, loop: _Loop) -> bool:
    """Return whether a loop counts by ones to a size that is not known when it is compiled."""
    by_one = loop.step.type == "update_expression" and operator(loop.step) == "++"
    known = _CONSTANT.fullmatch(kernel.text(loop.bound))
    return loop.variable is not None and loop.comparison == "<" and by_one and not known


def thread_split(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Ranges of threads that leave out an index, or do what others do."""
    if called(node) != PARALLEL or len(parts := arguments(node)) != 4:
        return
    yield replaced(parts[1], f"({kernel.text(parts[1])}) - 1")
    work = parts[3] if parts[3].type == "lambda_expression" else _lambda(kernel, parts[3])
    if work is None or (signature := work.child_by_field_name("declarator")) is None:
        return
    names = [declared(field(p, "declarator")) for p in field(signature, "parameters").named_children]
    first = name_of(names[0]) if names and names[0] is not None else ""
    for part in walk(field(work, "body")):
        loop = _loop(part)
        if loop is not None and loop.begin is not None and kernel.text(loop.begin) == first:
            start = kernel.text(parts[0])
            yield replaced(loop.begin, f"{first} + ({first} != {start})")
            yield replaced(loop.begin, start)


def _lambda(kernel: Kernel, node: Node) -> Node | None:
    """Return the lambda that a name of the same function has."""
    function = function_of(node)
    for part in walk(function) if function is not None else ():
        if part.type == "init_declarator" and kernel.text(field(part, "declarator")) == kernel.text(node):
            value = part.child_by_field_name("value")
            return value if value is not None and value.type == "lambda_expression" else None
    return None
