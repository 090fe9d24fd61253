"""The terminal of tests shows what a real one shows."""

from __future__ import annotations

import select
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.incremental.conftest import wait_for
from tests.support import screen


def test_the_last_screen_and_what_scrolled_off(tmp_path: Path) -> None:
    seen = screen.run(["sh", "-c", "seq 1 100; exit 3"], cwd=tmp_path)
    assert seen.code == 3
    assert seen.screen == (*map(str, range(78, 101)), ""), "the cursor is in the last line"
    assert seen.lines == tuple(map(str, range(1, 101)))
    assert seen.first("^42$") == 42


def test_the_terminal_wraps_a_long_line_and_its_text_stays_whole(tmp_path: Path) -> None:
    seen = screen.run(["sh", "-c", f"printf '\\033[31m{'x' * 100}\\033[0m\\n'; tput cols"], cwd=tmp_path)
    assert seen.lines == ("x" * 80, "x" * 20, "80")
    assert seen.text.splitlines()[0] == "x" * 100


def test_a_line_that_is_written_over(tmp_path: Path) -> None:
    seen = screen.run(["sh", "-c", "printf 'progress\\r\\033[2Kdone\\n'"], cwd=tmp_path)
    assert seen.lines == ("done",)


def test_a_command_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def select_later(*arguments: Any) -> Any:
        wait_for((tmp_path / "printed").exists)
        return select.select(*arguments)

    monkeypatch.setattr(screen, "select", SimpleNamespace(select=select_later))
    with pytest.raises(TimeoutError, match="it printed:\nhello"):
        screen.run(["sh", "-c", "echo hello; touch printed; sleep 1000"], cwd=tmp_path, seconds=0.1)
