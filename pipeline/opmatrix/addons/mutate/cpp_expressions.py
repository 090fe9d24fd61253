"""Mutants of expressions and statements: comparison, arithmetic, condition, constant, sign, dropped, check."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
)
from opmatrix.addons.mutate.cpp_types import (
    FLOATING,
    Change,
    Kernel,
    grain,
    has_tail,
    loop_of,
    only_grain,
    plain,
    replaced,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_AT_EQUAL = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
_REVERSED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_ARITHMETIC = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "|": "&", "&": "|", "^": "|"}
_ASSIGNED = {"+=": ("-=", "="), "-=": ("+=",), "*=": ("/=",), "/=": ("*=",), "|=": ("=",), "&=": ("=",)}
_NUMBER = re.compile(r"(0[xX][\da-fA-F'.]+(?:[pP][-+]?\d+)?|0[bB][01']+|[\d'.]+(?:[eE][-+]?\d+)?)([fFlLuU]*)")
_NAMED = re.compile(r"k[A-Z]\w*")  # the name of a constant
_ORDINARY = (1e-6, 1e6)  # floats that are doubled; others are limits, of which twice as much is no fault


def comparison(kernel: Kernel, node: Node) -> Iterator[Change]:
    if node.type != "binary_expression" or (sign := operator(node)) not in _AT_EQUAL:
        return
    loop = loop_of(node)
    shorter = loop is not None and has_tail(loop) and sign in ("<=", ">=")  # the tail does the rest
    if not shorter and not _is_extreme(kernel, node) and not _has_limit(kernel, node):
        yield replaced(field(node, "operator"), _AT_EQUAL[sign])
    if loop is None and sign in _REVERSED:
        yield replaced(field(node, "operator"), _REVERSED[sign])


def _is_extreme(kernel: Kernel, node: Node) -> bool:
    """Return whether a comparison chooses between its two sides, as in ``a < b ? a : b``, or a value and its negative:
    where they are equal it does not matter."""
    pair = {kernel.text(field(node, "left")), kernel.text(field(node, "right"))}
    for outer in ancestors(node):
        if outer.type == "conditional_expression":
            chosen = [kernel.text(field(outer, name)) for name in ("consequence", "alternative")]
            return set(chosen) == pair or chosen[0].lstrip("-") == chosen[1].lstrip("-")
        if outer.type == "if_statement":
            assigned = [n for n in field(outer, "consequence").named_children if n.type == "assignment_expression"]
            sides = {kernel.text(field(n, name)) for n in assigned for name in ("left", "right")}
            return sides == pair
        if outer.type not in ("condition_clause", "parenthesized_expression", "binary_expression"):
            return False
    return False


def _has_limit(kernel: Kernel, node: Node) -> bool:
    """Return whether a comparison is with a limit of the arithmetic, such as 1e-280, which no value meets exactly."""
    for side in (field(node, "left"), field(node, "right")):
        if side.type == "number_literal" and (number := _floating(kernel.text(side))):
            return not _ORDINARY[0] < abs(number) < _ORDINARY[1]
        named = side.named_children[-1] if side.type == "unary_expression" else side
        if named.type == "identifier" and _NAMED.fullmatch(name_of(named)) and kernel.types.of(named) in FLOATING:
            return True
    return False


def _floating(text: str) -> float:
    """Return the value of a floating literal; 0 for another one."""
    match = _NUMBER.fullmatch(text)
    if match is None or match[1].replace("'", "").isdigit() or match[1][:2].lower() == "0b":
        return 0.0
    digits = match[1].replace("'", "")
    if digits[:2].lower() == "0x":
        return float.fromhex(digits) if "p" in digits.lower() else 0.0
    return float(digits)


def arithmetic(kernel: Kernel, node: Node) -> Iterator[Change]:
    if grain(node):
        return
    if node.type == "binary_expression" and (sign := operator(node)) in _ARITHMETIC:
        yield replaced(field(node, "operator"), _ARITHMETIC[sign])
    in_header = node.parent is not None and node.parent.type == "for_statement"
    if node.type == "assignment_expression" and not in_header:
        for after in _ASSIGNED.get(operator(node), ()):
            yield replaced(field(node, "operator"), after)


def condition(kernel: Kernel, node: Node) -> Iterator[Change]:
    if node.type == "binary_expression" and (sign := operator(node)) in ("&&", "||"):
        yield replaced(field(node, "operator"), "||" if sign == "&&" else "&&")
        yield replaced(node, kernel.text(field(node, "left")))
        if operator(field(node, "left")) != sign:  # of a chain each operand is left out once
            yield replaced(node, kernel.text(field(node, "right")))
    if node.type in ("if_statement", "while_statement"):
        clause = field(node, "condition")
        tested = clause.child_by_field_name("value")
    elif node.type in ("conditional_expression", "for_statement"):
        tested = node.child_by_field_name("condition")
    else:
        return
    if tested is None or tested.type in ("declaration", "number_literal", "true", "false"):
        return
    loops = node.type in ("while_statement", "for_statement")
    if not (node.type == "for_statement" and has_tail(node)):
        yield replaced(tested, "false")
    if not loops:
        yield replaced(tested, "true")


def constant(kernel: Kernel, node: Node) -> Iterator[Change]:
    if node.type in ("true", "false"):
        yield replaced(node, "false" if node.type == "true" else "true")
    elif node.type == "string_literal" and node.parent is not None and called(node.parent.parent or node) == "equal":
        yield replaced(node, '""')
    elif node.type == "number_literal" and not _is_elsewhere(kernel, node):
        for after in other_numbers(kernel.text(node)):
            yield replaced(node, after)


def _is_elsewhere(kernel: Kernel, node: Node) -> bool:
    """Return whether a number belongs to another kind: an index, an axis, a bound, what a thread gets."""
    parent = node.parent
    assert parent is not None
    if parent.type in ("subscript_argument_list", "case_statement", "array_declarator") or grain(node):
        return True
    outer = parent.parent
    if outer is not None and outer.type == "call_expression":
        function = field(outer, "function")
        if function.type == "field_expression" and name_of(field(function, "field")) == "size":
            return True
    if parent.type == "init_declarator" and outer is not None:
        name = declared(parent)
        loop = outer.parent is not None and outer.parent.type == "for_statement"
        return loop or (name is not None and only_grain(kernel, name_of(name)))
    return loop_of(parent) is not None


def other_numbers(text: str) -> Iterator[str]:
    """Yield other numbers for a literal."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return
    digits, suffix = match[1].replace("'", "").lower(), match[2]
    if digits.isdigit() or digits[:2] == "0b" or (digits[:2] == "0x" and "p" not in digits):
        value = int(digits) if digits.isdigit() else int(digits, 0)
        yield f"{value + 1}{suffix}"
        if value:
            yield f"{value - 1}{suffix}"
    elif number := _floating(text):
        yield f"0.0{suffix}"
        if _ORDINARY[0] < number < _ORDINARY[1]:
            yield f"{2 * number!r}{suffix}"
    else:
        yield f"1.0{suffix}"


def sign(kernel: Kernel, node: Node) -> Iterator[Change]:
    if node.type == "unary_expression" and operator(node) in ("-", "!"):
        yield replaced(node, kernel.text(field(node, "argument")))
    value, of = _computed(kernel, node)
    if value is not None and of in FLOATING and value.type not in ("number_literal", "initializer_list"):
        yield replaced(value, f"-({kernel.text(value)})")


def _computed(kernel: Kernel, node: Node) -> tuple[Node | None, str]:
    """Return what a return, an assignment or a declaration computes, and its type."""
    in_lambda = any(outer.type == "lambda_expression" for outer in ancestors(node))
    if node.type == "return_statement" and node.named_children and not in_lambda:
        function = function_of(node)
        base = None if function is None else function.child_by_field_name("type")
        return node.named_children[0], plain(kernel.text(base)) if base is not None else ""
    if node.type == "assignment_expression" and operator(node) == "=":
        return field(node, "right"), kernel.types.of(field(node, "left"))
    if node.type == "init_declarator" and (name := declared(node)) is not None:
        return node.child_by_field_name("value"), kernel.types.of(name)
    return None, ""


def dropped(kernel: Kernel, node: Node) -> Iterator[Change]:
    if node.type == "expression_statement" and node.named_children and not is_check(node.named_children[0]):
        yield replaced(node, ";")
    elif node.type in ("break_statement", "continue_statement", "for_range_loop"):
        in_switch = node.parent is not None and node.parent.type == "case_statement"
        if not in_switch:
            yield replaced(node, ";")


def check(kernel: Kernel, node: Node) -> Iterator[Change]:
    if is_check(node):
        tested = arguments(node)[0]
        yield replaced(tested, "true")
