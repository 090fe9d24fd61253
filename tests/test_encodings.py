"""Each text file is read and written in an encoding that the code names, wherever ruff infers no type for PLW1514."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PIPELINE = Path(__file__).parents[1] / "pipeline"
# The place of the mode among the arguments, by the function; other functions of these modules open no text.
MODES = {"open": 1, "os.fdopen": 1, "io.open": 1, ".open": 0, ".read_text": None, ".write_text": None}
OTHERS = ("os.", "tarfile.", "zipfile.", "webbrowser.")


def without_encoding(source: str) -> Iterator[int]:
    """Yield the lines of a source that open a text file in the encoding of the locale."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or {"encoding", None} & {k.arg for k in call.keywords}:
            continue
        called = ast.unparse(call.func)
        name = called if called in MODES else "" if called.startswith(OTHERS) else f".{called.rpartition('.')[2]}"
        if name not in MODES or (name != called and "." not in called):
            continue
        place = MODES[name]
        given = [k.value for k in call.keywords if k.arg == "mode"] + call.args[place:][:1] if place is not None else []
        if not (given and isinstance(given[0], ast.Constant) and "b" in str(given[0].value)):
            yield call.lineno


@pytest.mark.parametrize("path", sorted(PIPELINE.rglob("*.py")), ids=lambda path: str(path.relative_to(PIPELINE)))
def test_each_text_file_has_an_encoding(path: Path) -> None:
    found = [*without_encoding(path.read_text(encoding="utf-8"))]
    assert not found, f'{path}: lines {found}: add encoding="utf-8"'


FOUND = [
    "path.read_text()", "(a / 'b').read_text(errors='replace')", "path.write_text(text)", "path.open()",
    "path.open('a')", "path.open(mode='w')", "open(name)", "open(name, 'w')", "open(name, mode)", "os.fdopen(1, 'w')",
    "f(x).y.open(buffering=1)",
]  # fmt: skip
NOT = [
    "path.read_text(encoding='utf-8')", "path.read_bytes()", "path.open('rb')", "path.open(mode='wb')",
    "open(name, 'rb')", "open(name, encoding='ascii')", "os.open(name, 0)", "os.fdopen(0, 'rb')",
    "tarfile.open(name)", "path.write_text(text, **options)", "write_text(path, text)",
]  # fmt: skip


@pytest.mark.parametrize("call", [*FOUND, *NOT])
def test_what_the_check_finds(call: str) -> None:
    assert [*without_encoding(f"x = 1\n{call}")] == ([2] if call in FOUND else [])
