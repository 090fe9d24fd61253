"""Mutants of loops: bound, tail, large, thread_split.

Mutants of a kernel, from its syntax tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from opmatrix.addons.mutate import cpp_data, cpp_expressions
from opmatrix.addons.mutate.cpp import (
    arguments,
    called,
    context,
    declared,
    field,
    function_name,
    function_of,
    name_of,
    operator,
    parse,
    walk,
)
from opmatrix.addons.mutate.cpp_types import PARALLEL, Change, Kernel, Operator, Types, has_tail, replaced
from opmatrix.addons.mutate.mutant import Mutant, numbered

if TYPE_CHECKING:
    from tree_sitter import Node


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
        yield replaced("bound", loop.bound, f"({kernel.text(loop.bound)}) {'+' if more else '-'} 1")
    if loop.begin is not None and loop.begin.type != "initializer_list":
        yield replaced("bound", loop.begin, f"({kernel.text(loop.begin)}) + 1")
    if loop.step.type == "update_expression":
        yield replaced("bound", loop.step, f"{kernel.text(field(loop.step, 'argument'))} {operator(loop.step)[0]}= 2")
    elif loop.step.type == "assignment_expression":
        step = field(loop.step, "right")
        yield replaced("bound", step, f"({kernel.text(step)}) + 1")


def tail(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A loop without its last indices: the tail itself, or what a loop over vectors leaves."""
    if (loop := _loop(node)) is None:
        return
    if node.child_by_field_name("initializer") is None:
        if not has_tail(node):
            yield replaced("tail", field(node, "condition"), "false")
    elif _counts(kernel, loop):
        yield replaced("tail", loop.bound, f"({kernel.text(loop.bound)}) / {LANES} * {LANES}")


def large(kernel: Kernel, node: Node) -> Iterator[Change]:
    """A loop that is right up to a size."""
    if (loop := _loop(node)) is not None and _counts(kernel, loop):
        text = kernel.text(loop.bound)
        yield replaced("large", loop.bound, f"(({text}) < {LARGE} ? ({text}) : {LARGE})")


def _counts(kernel: Kernel, loop: _Loop) -> bool:
    """Return whether a loop counts by ones to a size that is not known when it is compiled."""
    by_one = loop.step.type == "update_expression" and operator(loop.step) == "++"
    known = _CONSTANT.fullmatch(kernel.text(loop.bound))
    return loop.variable is not None and loop.comparison == "<" and by_one and not known


def thread_split(kernel: Kernel, node: Node) -> Iterator[Change]:
    """Ranges of threads that leave out an index, or do what others do."""
    if called(node) != PARALLEL or len(parts := arguments(node)) != 4:
        return
    yield replaced("thread_split", parts[1], f"({kernel.text(parts[1])}) - 1")
    work = parts[3] if parts[3].type == "lambda_expression" else _lambda(kernel, parts[3])
    if work is None or (signature := work.child_by_field_name("declarator")) is None:
        return
    names = [declared(field(p, "declarator")) for p in field(signature, "parameters").named_children]
    first = name_of(names[0]) if names and names[0] is not None else ""
    for part in walk(field(work, "body")):
        loop = _loop(part)
        if loop is not None and loop.begin is not None and kernel.text(loop.begin) == first:
            start = kernel.text(parts[0])
            yield replaced("thread_split", loop.begin, f"{first} + ({first} != {start})")
            yield replaced("thread_split", loop.begin, start)


def _lambda(kernel: Kernel, node: Node) -> Node | None:
    """Return the lambda that a name of the same function has."""
    function = function_of(node)
    for part in walk(function) if function is not None else ():
        if part.type == "init_declarator" and kernel.text(field(part, "declarator")) == kernel.text(node):
            value = part.child_by_field_name("value")
            return value if value is not None and value.type == "lambda_expression" else None
    return None


KINDS: Mapping[str, Operator] = {
    "bound": bound,
    "tail": tail,
    "large": large,
    "thread_split": thread_split,
    "index": cpp_data.index,
    "further": cpp_data.further,
    "ignored": cpp_data.ignored,
    "size": cpp_data.size,
    "swapped": cpp_data.swapped,
    "attribute": cpp_data.attribute,
    "result": cpp_data.result,
    "narrow": cpp_data.narrow,
    "state": cpp_data.state,
    "comparison": cpp_expressions.comparison,
    "arithmetic": cpp_expressions.arithmetic,
    "condition": cpp_expressions.condition,
    "constant": cpp_expressions.constant,
    "sign": cpp_expressions.sign,
    "dropped": cpp_expressions.dropped,
    "check": cpp_expressions.check,
}
"""The operators of mutation, by the kind of their mutants. Of two with one result, the first counts."""

NO_SHAPES: Mapping[str, str] = MappingProxyType({})


def kernel_mutants(
    path: str, source: str, defaults: Mapping[str, str], shapes: Mapping[str, str] = NO_SHAPES
) -> list[Mutant]:
    """Return the mutants of a kernel.h, in its order.

    `defaults` has a C++ value for the name of each attribute; `shapes` as in `Kernel`. Lines that the grammar does not
    know are not mutated: `syntax.unparsed_lines`.
    """
    code = parse(source)
    kernel = Kernel(code, Types(code), defaults, shapes)
    nodes = [*walk(code.root)]
    return numbered(
        Mutant(
            path=path,
            kind=change.kind,
            function=function_name(node),
            line=code.data[: change.start].count(b"\n") + 1,
            start=change.start,
            end=change.end,
            before=code.data[change.start : change.end].decode(),
            after=change.after,
            context=context(code, change.start, change.end),
        )
        for mutate in KINDS.values()
        for node in nodes
        for change in mutate(kernel, node)
    )
