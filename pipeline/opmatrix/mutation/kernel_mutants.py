"""Mutants of a kernel, from its syntax tree."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from opmatrix.mutation import cpp_data, cpp_expressions, cpp_loops, cpp_values
from opmatrix.mutation.cpp_change import Kernel, Operator
from opmatrix.mutation.cpp_types import Types
from opmatrix.mutation.mutant import Mutant, numbered
from opmatrix.mutation.syntax import context, function_name, parse, walk

KINDS: Mapping[str, Operator] = {
    "bound": cpp_loops.bound,
    "tail": cpp_loops.tail,
    "large": cpp_loops.large,
    "thread_split": cpp_loops.thread_split,
    "index": cpp_data.index,
    "further": cpp_data.further,
    "ignored": cpp_data.ignored,
    "size": cpp_data.size,
    "swapped": cpp_data.swapped,
    "attribute": cpp_data.attribute,
    "result": cpp_values.result,
    "narrow": cpp_values.narrow,
    "state": cpp_values.state,
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
