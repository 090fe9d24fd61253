"""What the operators of mutation of Python read, and what they yield."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from opmatrix.mutation.cpp_change import Change


@dataclass(frozen=True, kw_only=True)
class Source:
    """A file; `defaults` has a Python value for the name of each attribute."""

    text: str
    tree: ast.Module
    defaults: Mapping[str, str]

    @cached_property
    def names(self) -> set[str]:
        """All names that the file uses."""
        return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}

    @cached_property
    def _options(self) -> set[ast.expr]:
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        return {keyword.value for call in calls for keyword in call.keywords}

    def is_option(self, node: ast.expr) -> bool:
        """Return whether a node is the value of an argument by name, as in ``keepdims_i=1``, where 2 may mean 1."""
        return node in self._options

    @cached_property
    def _data(self) -> bytes:
        return self.text.encode()

    @cached_property
    def _lines(self) -> list[int]:
        """The offset at which each line begins."""
        offsets = [0]
        for line in self._data.split(b"\n"):
            offsets.append(offsets[-1] + len(line) + 1)
        return offsets

    def span(self, node: ast.expr | ast.stmt | ast.keyword) -> tuple[int, int]:
        """Return the offsets of a node in the bytes of the file; `ast` counts columns in bytes too."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset

    def between(self, start: int, end: int) -> str:
        return self._data[start:end].decode()

    def of(self, node: ast.expr | ast.stmt | ast.keyword) -> str:
        return self.between(*self.span(node))

    def line(self, offset: int) -> int:
        return self._data[:offset].count(b"\n") + 1

    def replaced(self, kind: str, node: ast.expr | ast.stmt | ast.keyword, after: str) -> Change:
        start, end = self.span(node)
        return Change(kind=kind, start=start, end=end, after=after)

    def operator(self, kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Change:
        """Return the change of the operator between two expressions."""
        start, end = self.span(left)[1], self.span(right)[0]
        at = start + self._data[start:end].index(old.encode())
        return Change(kind=kind, start=at, end=at + len(old.encode()), after=new)

    def context(self, statement: ast.stmt | ast.expr, change: Change) -> str:
        """Return a statement or an expression in one line, with ``«»`` around the changed place, and without other
        statements."""
        start, end = self.span(statement)
        if body := getattr(statement, "body", None):
            end = max(self.span(body[0])[0], change.end) if not isinstance(body, ast.expr) else end
        pieces = (self.between(start, change.start), f"«{self.between(change.start, change.end)}»")
        return " ".join("".join((*pieces, self.between(change.end, end))).split())


Operator = Callable[[Source, ast.AST], Iterator[Change]]
