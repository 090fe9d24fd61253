"""Which names a new operator cannot have: those that the code which is generated for this very operator uses.

The code is rendered with marks in place of names, and its identifiers are read, so there is no list to keep.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from opmatrix.basics.errors import UsageError
from opmatrix.codegen import bindings, python_modules
from opmatrix.scaffold import render
from opmatrix.scaffold.draft import Draft, operator_name, unused
from opmatrix.signature.parser import Parameter, Schema
from opmatrix.signature.signature import is_written
from opmatrix.spec import Attribute, Input, OpSpec, Output, SameAs

_MARK = re.compile(r"(?:out_)?zq(?:\d+|operator)qz")
# What is no identifier of its own: comments, strings, directives, and what is behind a qualifier or a dot.
_NOT_CPP = re.compile(r"""//[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|\#[^\n]*|(?:::|->|\.)\s*\w+""")


@dataclass(frozen=True, kw_only=True)
class Used:
    """The names that generated code uses, and those that it makes of the name of a part, each with that part."""

    words: frozenset[str] = frozenset()
    python: frozenset[str] = frozenset()  # those of them that are in Python
    derived: Mapping[str, str] = field(default_factory=dict)

    def __contains__(self, name: str) -> bool:
        return name in self.words or name in self.derived

    def for_operator(self, requested: str, wanted: str) -> str:
        """Return the requested name of an operator, or one that is made of the wanted one. Raises UsageError."""
        if requested in self.words:
            what = "which generated code uses for something else"
            raise UsageError(f"name: found {requested!r}, {what}; choose another name")
        return requested or operator_name(wanted, self.words)

    def free(self, name: str, others: Iterable[str]) -> str:
        """Return the first of ``name_``, ``name_2`` and so on that neither the code nor another part has."""
        made = (word for word, owner in self.derived.items() if owner != name)
        return unused(f"{name}_", {*others, *self.words, *made})


NOTHING = Used()
OPERATOR = "zqoperatorqz"  # the name of a marked one
UNMARKED = ("pin_memory",)  # its name says what it is


def names_in_code(marked: Iterable[OpSpec], names: Mapping[str, str]) -> Used:
    """Return the names in the generated code of declarations whose parts are marks; `names` has the name for each."""
    words: set[str] = set()
    python: set[str] = set()
    for spec in marked:
        texts = bindings.render(spec)
        texts.pop("ort_library.cc", "")  # where no part of an operator is visible
        words.update(*(re.findall(r"[A-Za-z_]\w*", _NOT_CPP.sub(" ", text)) for text in texts.values()))
        python.update(*(_python_names(text) for text in python_modules.render(spec).values()))
        words.update(_python_names(render.reference(Draft(spec=spec))))
    words |= python
    derived = {}
    for word in words:
        if (found := _MARK.search(word)) and found[0] != word and found[0] in names:
            derived[word.replace(found[0], names[found[0]])] = names[found[0]]
    plain = frozenset(word for word in words if not _MARK.search(word))
    return Used(words=plain, python=plain & python, derived=derived)


def with_marks(spec: OpSpec) -> OpSpec:
    """Return a declaration with marks in place of the names of parts that have no name in the schema."""

    def mark(part: Output | Attribute, n: int) -> str:
        return part.name if _MARK.fullmatch(part.name) else f"zq{n}0000qz"

    outputs = tuple(replace(o, name=mark(o, n)) for n, o in enumerate(spec.outputs, 1))
    attributes = tuple(replace(a, name=mark(a, n)) for n, a in enumerate(spec.attributes, 1 + len(outputs)))
    return replace(spec, outputs=outputs, attributes=attributes)


def _python_names(text: str) -> Iterator[str]:
    """Yield the names in functions in which a part of the operator has one."""
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef):
            found = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
            found |= {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
            yield from found if any(map(_MARK.search, found)) else ()


def marked_schema(schema: Schema) -> tuple[str, dict[str, str]]:
    """Return the text of a schema with marks in place of names, except those whose name says what they are for."""
    text, names = schema.text, {}
    parts: list[Parameter] = [*schema.arguments, *schema.results]
    for n, part in reversed([*enumerate(parts)]):
        if part.name and part.name not in UNMARKED:
            mark = f"out_zq{n}qz" if is_written(part) and re.match("out|result|dst", part.name) else f"zq{n}qz"
            text, names[mark] = text[: part.at] + mark + text[part.at + len(part.name) :], part.name
    return text, names


def marked_nodes(spec: OpSpec) -> tuple[OpSpec, dict[str, str]]:
    """Return the declaration of nodes, which has no torch, with marks in place of names."""
    parts: list[Input | Attribute | Output] = [*spec.inputs, *spec.attributes, *spec.outputs]
    marks = {part.name: f"zq{n}qz" for n, part in enumerate(parts)}

    def marked(part: Output) -> Output:
        shape = part.shape
        if isinstance(shape, SameAs):
            shape = replace(shape, input=marks[shape.input])
        return replace(part, name=marks[part.name], shape=shape)

    found = replace(
        spec,
        name=OPERATOR,
        inputs=tuple(replace(part, name=marks[part.name]) for part in spec.inputs),
        attributes=tuple(replace(part, name=marks[part.name]) for part in spec.attributes),
        outputs=tuple(map(marked, spec.outputs)),
    )
    return found, {mark: name for name, mark in marks.items()}
