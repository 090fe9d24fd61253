"""Commands as they can be pasted: through ./run in a checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.runner.pasted import pasted

TEXT = "Debug: python -m pipeline compile a --debug && gdb --args python -m pipeline verify a --debug"


def test_in_a_project_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert pasted(TEXT) == TEXT


def test_in_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").touch()
    monkeypatch.chdir(tmp_path)
    told = "Debug: ./run python -m pipeline compile a --debug && ./run gdb --args python -m pipeline verify a --debug"
    assert pasted(TEXT) == told
    assert pasted(told) == told
