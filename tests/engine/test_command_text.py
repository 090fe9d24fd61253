"""Commands that users can paste: with ./run in a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.terminal_text import for_shell

TEXT = "Debug: python -m opmatrix compile a --debug && gdb --args python -m opmatrix verify a --debug"


def test_commands_in_a_users_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert for_shell(TEXT) == TEXT


def test_commands_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").touch()
    monkeypatch.chdir(tmp_path)
    debug = "Debug: ./run python -m opmatrix compile a --debug && ./run gdb --args python -m opmatrix verify a --debug"
    assert for_shell(TEXT) == debug
    assert for_shell(debug) == debug
