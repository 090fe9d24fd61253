"""A found case as Python text, and how it comes into cases.py. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pipeline.source import WIDTH


def adopted(cases: str, model: str, comment: str) -> str:
    """Return the text of a cases.py with one more model at the end of MODELS. Raises ValueError where none stands."""
    assignments = [
        node
        for node in ast.parse(cases).body
        if isinstance(node, ast.Assign | ast.AnnAssign) and "MODELS" in _targets(node)
    ]
    if not assignments or (value := assignments[-1].value) is None:
        raise ValueError("it assigns nothing to MODELS at its top level")
    start, end = _offset(cases, value.lineno, value.col_offset), _offset(cases, value.end_lineno, value.end_col_offset)
    before = cases[start:end]
    if isinstance(value, ast.Tuple) and before.endswith(")"):
        body = before[1:-1].rstrip()
        body += "," if body and not body.endswith(",") else ""
    elif isinstance(value, ast.Tuple):
        body = f"\n    {before.rstrip(', ')},"
    else:
        body = f"\n    *{before},"
    added = "".join(f"\n    # {line}" for line in _wrapped(comment)) + f"\n    {_indented(model)},\n"
    return _with_imports(cases[:start] + "(" + body + added + ")" + cases[end:], model)


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def _offset(text: str, line: int | None, column: int | None) -> int:
    """Return the index of a position that ast gives: a line, and UTF-8 bytes into it."""
    assert line is not None and column is not None
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())


def _wrapped(comment: str) -> Iterator[str]:
    line = ""
    for word in comment.split():
        if line and len(line) + len(word) > WIDTH - 8:
            yield line
            line = ""
        line += f" {word}" if line else word
    yield line


def _indented(model: str) -> str:
    return model.replace("\n", "\n    ")


def _with_imports(cases: str, model: str) -> str:
    """Add an import of the classes that `model` names and `cases` does not know."""
    tree = ast.parse(cases)
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    known = {alias.asname or alias.name for node in imports for alias in node.names}
    named = {node.id for node in ast.walk(ast.parse(model)) if isinstance(node, ast.Name)} - {"float"}
    if not (missing := sorted(named - known)):
        return cases
    line = f"from pipeline.spec import {', '.join(missing)}\n"
    lines = cases.splitlines(keepends=True)
    at = imports[-1].end_lineno if imports else 0
    return "".join((*lines[:at], line, *lines[at:]))
