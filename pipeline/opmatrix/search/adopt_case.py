"""Add a case that the property test found to cases.py; then it is exported and verified like the others."""

from __future__ import annotations

import ast
import textwrap

from opmatrix.basics.errors import UsageError
from opmatrix.basics.files import write_text
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.signature.python_source import names


def run(paths: Paths, operator: Operator, *, case: str) -> None:
    """Add `case` to MODELS. Raises UsageError where it was not found or exists already."""
    path, cases = paths.failing_case(operator.name, case), paths.cases(operator.name)
    shown = cases.relative_to(paths.root)
    if any(c.name == case for m in operator.models for c in m.cases):
        raise UsageError(f"{shown} has the case {case!r} already")
    try:
        problem, _, model = path.read_text(encoding="utf-8").partition("\n")
    except FileNotFoundError as error:
        known = ", ".join(sorted(p.stem for p in path.parent.glob("*.txt"))) or "none"
        raise UsageError(
            f"no case {case!r} was found for {operator.name}, there is: {known}. "
            f"Search with: python -m opmatrix register {operator.name} --part search"
        ) from error
    try:
        text = insert_into_models(cases.read_text(encoding="utf-8"), model.strip(), problem)
    except ValueError as error:
        raise UsageError(f"{shown}: {error}. Add by hand: {model.strip()}") from error
    write_text(cases, text)


def insert_into_models(cases: str, model: str, comment: str) -> str:
    """Return cases.py with one more model at the end of MODELS. Raises ValueError if it has no MODELS."""
    values = [
        node.value
        for node in ast.parse(cases).body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "MODELS"
    ]
    if not values or (value := values[-1]) is None:
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
    added = textwrap.indent("\n".join([*textwrap.wrap(f"# {comment}", 112, subsequent_indent="# "), model]), "    ")
    cases = f"{cases[:start]}({body}\n{added},\n){cases[end:]}"
    imports = [node for node in ast.parse(cases).body if isinstance(node, ast.Import | ast.ImportFrom)]
    known = {alias.asname or alias.name for node in imports for alias in node.names}
    if not (missing := [name for name in names(model) if name not in known]):
        return cases
    lines, at = cases.splitlines(keepends=True), imports[-1].end_lineno if imports else 0
    return "".join((*lines[:at], f"from opmatrix.spec import {', '.join(missing)}\n", *lines[at:]))


def _offset(text: str, line: int | None, column: int | None) -> int:
    """Return the index in `text` of a position of ast: a line, and an offset in UTF-8 bytes."""
    assert line is not None and column is not None
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
