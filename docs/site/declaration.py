"""The pages about the fields of a declaration and of a bench.py, from the text of their classes' modules: pure."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.report.operator_pages import code, codes, plain, prose, table


@dataclass(frozen=True, kw_only=True)
class Field:
    name: str
    type: str
    default: str  # the default as it is written; "" for none
    meaning: str


@dataclass(frozen=True, kw_only=True)
class Class:
    name: str
    doc: str
    fields: tuple[Field, ...]


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: where its classes are, and the `roots`, which the others follow as fields refer to them."""

    title: str
    file: str
    about: str
    roots: tuple[str, ...]


DECLARATION = Page(
    title="The declaration",
    file="pipeline/opmatrix/spec.py",
    about="`ops/<name>/spec.py` defines `SPEC`, an [OpSpec](#opspec); `ops/<name>/cases.py` defines `MODELS`, a tuple "
    "of [Model](#model). All fields are given by name: `from opmatrix.spec import OpSpec, ...`. What does not hold is "
    "reported with its file and field, all of it in one go, before anything runs.",
    roots=("OpSpec", "Model"),
)
BENCH = Page(
    title="bench.py",
    file="pipeline/opmatrix/bench/spec.py",
    about="`ops/<name>/bench.py` defines `BENCH`, a [Bench](#bench): `from opmatrix.bench.spec import Bench, ...`. "
    "[How to measure the speed of an operator](../how-to/benchmark.md) explains what is done with it.",
    roots=("Bench",),
)


def render(source: str, page: Page = DECLARATION) -> str:
    """Return the page. Raises ValueError for a field without a description."""
    tree = ast.parse(source)
    classes = {c.name: c for c in _classes(tree, page.file)}
    aliases = dict(_aliases(tree))
    parts = [
        f"# {page.title}",
        prose(ast.get_docstring(tree) or ""),
        page.about,
        *(_class(classes[name], classes, aliases) for name in _order(classes, page.roots)),
        "## Types by name",
        *(f"### {name}\n\n{text}" for name, text in aliases.items()),
    ]
    return "\n\n".join(parts) + "\n"


def _classes(tree: ast.Module, file: str) -> Iterator[Class]:
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield Class(
                name=node.name, doc=inspect.cleandoc(ast.get_docstring(node) or ""), fields=(*_fields(node, file),)
            )


def _fields(node: ast.ClassDef, file: str) -> Iterator[Field]:
    """Yield the fields of a dataclass; the string below a field, as Sphinx and editors read it, describes it."""
    for line, following in zip(node.body, [*node.body[1:], None], strict=True):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        if not (isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)):
            raise ValueError(f"{file}:{line.lineno}: say below {line.target.id!r} what it means")
        yield Field(
            name=line.target.id,
            type=ast.unparse(line.annotation),
            default=_default(line.value),
            meaning=plain(str(following.value.value)),
        )


def _default(value: ast.expr | None) -> str:
    if isinstance(value, ast.Call):  # field(default_factory=dict)
        return "{}"
    return ast.unparse(value) if value else ""


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the type aliases, and what they allow."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id != "MISSING":
            value = node.value
            if isinstance(value, ast.Subscript) and ast.unparse(value.value) == "Literal":
                allowed = ast.literal_eval(value.slice)
                yield node.targets[0].id, codes(f'"{item}"' for item in allowed)
            else:
                yield node.targets[0].id, " or ".join(map(code, ast.unparse(value).replace("'", "").split(" | ")))


def _order(classes: Mapping[str, Class], roots: Sequence[str]) -> Sequence[str]:
    """Return the classes from the roots on, each before those that its fields name."""
    found = []
    waiting = list(roots)
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found.append(name)
        words = " ".join(field.type for field in classes[name].fields).replace("Tensor", "Random Values")
        waiting[:0] = [word for word in re.findall(r"\w+", words) if word in classes and word not in found]
    return [*found, *(name for name in classes if name not in found)]


def _class(one: Class, classes: Mapping[str, Class], aliases: Mapping[str, str]) -> str:
    known = {**classes, **aliases}
    rows = [(code(f.name), _type(f.type, known), code(f.default) or "required", f.meaning) for f in one.fields]
    doc, _, example = one.doc.partition("\n\nExample:\n")
    block = f"\n\n```pycon\n{textwrap.dedent(example)}\n```" if example else ""
    return f"## {one.name}\n\n{prose(doc)}\n\n{table(('field', 'type', 'default', 'meaning'), rows)}{block}"


def _type(annotation: str, known: Mapping[str, object]) -> str:
    """Return a type, each alternative a link where this page describes it."""

    def linked(alternative: str) -> str:
        names = [word for word in re.findall(r"\w+", alternative) if word in known]
        return f"[{code(alternative)}](#{names[0].lower()})" if names else code(alternative)

    return " or ".join(map(linked, re.split(r" \| (?![^\[]*\])", annotation)))
