"""The mutants of an operator: those of its kernel, and of what it has in Python; and a sample of them: seeded, and
spread over kinds and functions as the mutants themselves are."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from opmatrix.addons.mutate import cpp_data, cpp_expressions
from opmatrix.addons.mutate.cpp import context, function_name, parse, unparsed_lines, walk
from opmatrix.addons.mutate.cpp_types import Kernel, Operator, Types
from opmatrix.addons.mutate.mutant import Mutant, numbered
from opmatrix.addons.mutate.python_mutants import python_mutants
from opmatrix.basics.errors import SpecError, many
from opmatrix.codegen.cpp import literal
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import onnx_name, torch_name
from opmatrix.spec import Attribute, AttributeValue, Dims, OpSpec, SameAs

OPERATORS = (
    cpp_data.bound, cpp_data.tail, cpp_data.large, cpp_data.thread_split, cpp_data.index, cpp_data.further,
    cpp_data.ignored, cpp_data.size, cpp_data.swapped, cpp_data.attribute, cpp_data.result, cpp_data.narrow,
    cpp_data.state, cpp_expressions.comparison, cpp_expressions.arithmetic, cpp_expressions.condition,
    cpp_expressions.constant, cpp_expressions.sign, cpp_expressions.dropped, cpp_expressions.check,
)  # fmt: skip
KINDS: Mapping[str, Operator] = {operator.__name__: operator for operator in OPERATORS}
"""The operators of mutation, by the kind of their mutants. Of two with one result, the first counts."""

NO_SHAPES: Mapping[str, str] = MappingProxyType({})


def kernel_mutants(
    path: str, source: str, defaults: Mapping[str, str], shapes: Mapping[str, str] = NO_SHAPES
) -> list[Mutant]:
    """Return the mutants of a kernel.h, in its order.

    `defaults` has a C++ value for the name of each attribute; `shapes` as in `Kernel`. Lines that the grammar does not
    know are not mutated: `cpp.unparsed_lines`.
    """
    code = parse(source)
    kernel = Kernel(code, Types(code), defaults, shapes)
    nodes = [*walk(code.root)]
    return numbered(
        Mutant(
            path=path,
            kind=kind,
            function=function_name(node),
            line=code.data[: change.start].count(b"\n") + 1,
            start=change.start,
            end=change.end,
            before=code.data[change.start : change.end].decode(),
            after=change.after,
            context=context(code, change.start, change.end),
        )
        for kind, mutate in KINDS.items()
        for node in nodes
        for change in mutate(kernel, node)
    )


# An array in C++ for a kernel that takes a List, which points to one.
_LIST = "[] {{ static const {item} values[] = {{{values}}}; return opmatrix::List<{item}>{{values, {count}}}; }}()"
_ITEMS = {"float": "float", "int": "std::int64_t", "bool": "bool"}


def operator_mutants(paths: Paths, spec: OpSpec) -> list[Mutant]:
    """Return all mutants of an operator: of kernel.h or of the kernel in spec.py, then of its Python files.

    A mutant of a kernel in spec.py has the path of spec.py and the part "kernel"; it applies to `OpSpec.kernel`. Raises
    ToolchainError where tree-sitter is not installed.
    """

    def relative(path: Any) -> str:
        return str(path.relative_to(paths.root).as_posix())

    mutants, constants = [], attribute_constants(spec)
    kernel, declaration = paths.kernel(spec.name), paths.spec(spec.name)
    if spec.kernel is not None:
        above = lines_above(declaration.read_text(encoding="utf-8"), spec.kernel, where=relative(declaration))
        inline = kernel_mutants(relative(declaration), spec.kernel, constants, tensor_shapes(spec))
        mutants += [dataclasses.replace(mutant, line=mutant.line + above) for mutant in inline]
    elif kernel.is_file():
        mutants += kernel_mutants(relative(kernel), kernel.read_text(encoding="utf-8"), constants, tensor_shapes(spec))
    names = {a.name: (a.name, torch_name(a), onnx_name(a)) for a in spec.attributes}
    defaults = {n: repr(value) for name, value in _constants(spec).items() for n in names[name]}
    for path in (declaration, paths.lowering(spec.name), paths.torch_op(spec.name)):
        if path.is_file():
            mutants += python_mutants(relative(path), path.read_text(encoding="utf-8"), defaults)
    return mutants


def not_mutated(paths: Paths, spec: OpSpec) -> str:
    """Return a note about the lines of the kernel that the grammar does not know, and that have no mutants; else ""."""
    path = paths.spec(spec.name) if spec.kernel is not None else paths.kernel(spec.name)
    if not path.is_file():
        return ""
    lines = unparsed_lines(parse(path.read_text(encoding="utf-8") if spec.kernel is None else spec.kernel))
    if not lines:
        return ""
    above = 0 if spec.kernel is None else lines_above(path.read_text(encoding="utf-8"), spec.kernel, where=path.name)
    where = f"{path.relative_to(paths.root).as_posix()}:{lines[0] + above}"
    return (
        f"{where}: tree-sitter cannot read this as C++ ({many(len(lines), 'such place')} in the file), so nothing "
        "there is mutated. Often a macro in place of a type or a keyword is the reason: write it out, or as a function"
    )


def lines_above(declaration: str, kernel: str, *, where: str) -> int:
    """Return the number of lines of a spec.py above the first one of the kernel that is a string in it."""
    for node in ast.walk(ast.parse(declaration)):
        if isinstance(node, ast.Constant) and node.value == kernel:
            continued = declaration.splitlines()[node.lineno - 1].endswith("\\")
            return node.lineno - 1 + continued
    raise SpecError(
        f"{where}: no string in it is the kernel, which is computed, so doit mutate cannot tell lines and changes. "
        "Write the kernel as one string, or to kernel.h"
    )


def attribute_constants(spec: OpSpec) -> dict[str, str]:
    """Return a C++ value for each attribute: its default, or for one without a default another constant."""
    return {name: _cpp(value) for name, value in _constants(spec).items()}


def _constants(spec: OpSpec) -> dict[str, AttributeValue]:
    return {a.name: value for a in spec.attributes if a.kind != "tensor" and (value := _constant(a)) is not None}


def _constant(attribute: Attribute) -> AttributeValue | None:
    if attribute.default is not None or attribute.allowed:
        return attribute.default if attribute.default is not None else (attribute.allowed or ("",))[0]
    if attribute.kind == "string":
        return ""
    if attribute.kind == "bool":
        return False
    if attribute.kind not in ("int", "float"):
        return None  # a list of unknown length
    number = 1.0 if attribute.minimum is None else max(1.0, attribute.minimum)
    number = number if attribute.maximum is None else min(number, attribute.maximum)
    return int(number) if attribute.kind == "int" else number


def _cpp(value: AttributeValue) -> str:
    if isinstance(value, tuple):
        item = _ITEMS[type(value[0]).__name__] if value else "std::int64_t"
        values = ", ".join(literal(v, "f") for v in value)
        return _LIST.format(item=item, values=values, count=len(value)) if value else f"opmatrix::List<{item}>{{}}"
    text = literal(value, "f")
    return f"std::int64_t{{{text}}}" if type(value) is int else text


def tensor_shapes(spec: OpSpec) -> dict[str, str]:
    """Return a string for each tensor whose shape the declaration knows: equal strings mean equal shapes."""
    shapes: dict[str, str] = {}
    for part in spec.inputs:
        any_sizes = part.dims is None or "..." in part.dims
        shapes[part.name] = shapes[part.same_as] if part.same_as else part.name if any_sizes else str(part.dims)
    for output in (o for o in spec.outputs if not o.variadic):
        if isinstance(output.shape, SameAs) and not output.shape.replace:
            shapes[output.name] = shapes[output.shape.input]
        elif isinstance(output.shape, Dims) and "..." not in output.shape.dims:
            shapes[output.name] = str(output.shape.dims)
    return shapes


def sample(mutants: Sequence[Mutant], *, count: int, seed: str) -> list[Mutant]:
    """Return `count` mutants, or all where there are no more, in their order.

    Each part and kind is in it, as far as `count` allows. The others are taken so that each kind in each function has
    its share. Equal mutants and an equal `seed` give an equal sample, and an edit of one function hardly changes which
    mutants of others are in it, so that their results can be kept.
    """
    if count >= len(mutants):
        return list(mutants)
    rank = {mutant.key: _number(f"{seed} {mutant.key}") for mutant in mutants}
    by_rank = sorted(mutants, key=lambda mutant: rank[mutant.key])
    one_each = {(mutant.part, mutant.kind): mutant.key for mutant in reversed(by_rank)}  # the first by rank
    taken = set(sorted(one_each.values(), key=lambda key: rank[key])[:count])
    others = [key for _, key in sorted(_places(by_rank, seed)) if key not in taken]
    taken |= {*others[: count - len(taken)]}
    return [mutant for mutant in mutants if mutant.key in taken]


def _places(mutants: Sequence[Mutant], seed: str) -> list[tuple[float, str]]:
    """Return a number from 0 to 1 for each mutant: those of one kind in one function are evenly spaced, so that each
    such group has its share of the mutants below any number."""
    places = []
    for group, members in groupby(sorted(mutants, key=_group), key=_group):
        inside = list(members)
        first = _number(" ".join((seed, *group)))
        places += [((number + first) / len(inside), mutant.key) for number, mutant in enumerate(inside)]
    return places


def _group(mutant: Mutant) -> tuple[str, str, str]:
    return mutant.part, mutant.kind, mutant.function


def _number(text: str) -> float:
    """Return a number from 0 to 1, drawn by a hash."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:12], 16) / 16**12
