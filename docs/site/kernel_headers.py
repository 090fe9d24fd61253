"""The page about the headers for kernels, from the comments of native/include: pure."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from opmatrix.addons.mutate import cpp
from opmatrix.report.operator_pages import code, plain, prose, table

if TYPE_CHECKING:
    from tree_sitter import Node

INTRODUCTION = """\
A kernel includes these headers, and no header of a framework: `#include "opmatrix/tensor_view.h"`. They need only the
C++ standard library. Everything is in the namespace `opmatrix`, except macros. [The declaration](declaration.md)
decides the arguments of a kernel, and `doit new` writes its first lines."""
# Parts of a declaration that follow what a caller needs to know.
_BODIES = ("compound_statement", "field_declaration_list", "field_initializer_list", "enumerator_list")
_CLASSES = ("struct_specifier", "class_specifier", "union_specifier", "enum_specifier")
_MACROS = ("preproc_def", "preproc_function_def")
_CONDITIONS = ("preproc_ifdef", "preproc_if")
_NO_DECLARATIONS = (
    "comment", "preproc_include", "preproc_call", "preproc_else", "static_assert_declaration", "access_specifier",
)  # fmt: skip


@dataclass(kw_only=True)
class _Group:
    """Declarations under one comment, without an empty line between them."""

    doc: str
    signatures: list[str] = field(default_factory=list)
    members: list[_Group] = field(default_factory=list)


def render(headers: Mapping[str, str]) -> str:
    """Return the page; `headers` are texts by name, such as ``opmatrix/check.h``.

    Raises ValueError for a public declaration without a comment.
    """
    sections = [_header(name, text) for name, text in headers.items()]
    return "\n\n".join(["# Headers for kernels", INTRODUCTION, *sections]) + "\n"


def _header(name: str, text: str) -> str:
    parsed = cpp.parse(text)
    if unknown := cpp.unparsed_lines(parsed):
        raise ValueError(f"native/include/{name}:{unknown[0]}: the grammar of tree-sitter-cpp does not know this line")
    first = parsed.root.children[0]
    if first.type != "comment":
        raise ValueError(f"native/include/{name}:1: begin with a comment that describes the file")
    lines: list[str] = []
    for node in parsed.root.children:
        if node.type != "comment" or node.start_point[0] != len(lines):
            break
        lines.append(parsed.text(node).removeprefix("//").strip())
    groups = _groups(parsed.root, parsed, name)
    return "\n\n".join([f"## {name}", prose("\n".join(lines)), *map(_group, groups)])


def _group(group: _Group) -> str:
    shown = "\n".join(group.signatures)
    rows = [("<br>".join(code(" ".join(s.split())) for s in m.signatures), plain(m.doc)) for m in group.members]
    members = table(("member", "meaning"), rows)
    return "\n\n".join([f"```cpp\n{shown}\n```", prose(group.doc), *([members] if members else [])])


def _groups(parent: Node, parsed: cpp.Code, name: str, *, public: bool = True) -> list[_Group]:
    """Return the public declarations in a file, a namespace, a class or a block of the preprocessor."""
    found: list[_Group] = []
    comment: list[str] = []
    last, declared = -2, False  # the line in which the previous node ends, and whether it is a declaration
    for node in parent.children:
        begin = node.start_point[0]
        if begin != last + 1:
            comment = []
        if node.type == "comment":
            text = parsed.text(node)
            comment = [*comment, text[3:]] if text.startswith("///") else []
        elif node.type == "access_specifier":
            public = parsed.text(node) == "public"
        elif node.type == "namespace_definition":
            found += _namespace(node, parsed, name)
        elif node.type in _CONDITIONS and comment:  # describes what is defined in one of several ways
            first = next(child for child in node.named_children if _declares(child, node))
            found.append(_Group(doc=_text(comment), signatures=[_signature(first, parsed)]))
            comment = []
        elif node.type in _CONDITIONS:
            found += _groups(node, parsed, name)
        elif public and _declares(node, parent):
            if not comment and not (declared and begin == last + 1):
                raise ValueError(
                    f"native/include/{name}:{begin + 1}: {_signature(node, parsed)!r} has no description; write a "
                    "comment with /// above it"
                )
            if comment:
                found.append(_Group(doc=_text(comment)))
            found[-1].signatures.append(_signature(node, parsed))
            found[-1].members += _members(node, parsed, name)
            comment = []
        if node.type != ";":
            declared = public and _declares(node, parent)
            last = node.end_point[0] - (node.end_point[1] == 0)  # a directive ends at the beginning of the next line
    return found


def _namespace(node: Node, parsed: cpp.Code, name: str) -> list[_Group]:
    called, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if called is None or parsed.text(called) == "detail" or body is None:
        return []
    return _groups(body, parsed, name)


def _declares(node: Node, parent: Node) -> bool:
    """Whether a node declares something, and is no part of its parent, such as the condition of an #if."""
    parts = [parent.child_by_field_name(part) for part in ("condition", "name", "alternative")]
    return node.is_named and node.type not in (*_NO_DECLARATIONS, "ERROR") and node not in parts


def _text(comment: list[str]) -> str:
    return textwrap.dedent("\n".join(comment)).strip()


def _members(node: Node, parsed: cpp.Code, name: str) -> list[_Group]:
    inner = node.named_children[-1] if node.type == "template_declaration" else node
    body = inner.child_by_field_name("body") if inner.type in _CLASSES[:-1] else None
    return _groups(body, parsed, name, public=inner.type != "class_specifier") if body else []


def _signature(node: Node, parsed: cpp.Code) -> str:
    """Return a declaration without its body and without the indentation of its class."""
    end = min((n.start_byte for n in _walk(node) if n.type in _BODIES), default=node.end_byte)
    if node.type in _MACROS:
        value = node.child_by_field_name("value")
        end = value.start_byte if value else node.end_byte
    text = parsed.data[node.start_byte : end].decode().rstrip().removesuffix(";").removesuffix("\\").rstrip()
    text = re.sub(r" \[\[gnu::[^]]*\]\] = .*", "", text)  # Pygments cannot read an attribute in an alias
    text = text.replace("[[gnu::always_inline]] inline ", "")  # no difference to who calls it
    return re.sub(f"^ {{{node.start_point[1]}}}", "", text, flags=re.MULTILINE)


def _walk(node: Node) -> Iterator[Node]:
    """Yield the parts of a declaration, without what is in other braces, such as a default value."""
    for child in node.children:
        yield child
        if child.type in ("struct_specifier", "class_specifier", "function_definition", "enum_specifier"):
            yield from child.children
