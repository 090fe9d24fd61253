"""benchmarks/mistakes.py: the last screen after a mistake has its cause, its place and what to do.

Here the mistakes that need no verified project; the marker `deep` has all of them.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.incremental.conftest import REPOSITORY
from tests.support.screen import COLUMNS, shown

sys.path.insert(0, str(REPOSITORY / "benchmarks"))

import mistakes

pytestmark = pytest.mark.incremental

# The command that meets a mistake in a project where nothing is built, in place of the usual one.
ALONE: dict[str, tuple[str, ...]] = {
    "missing-environment": (),
    "no-network": (*mistakes.DOIT, "ort=1.18", "environment:ort1.18"),
    "broken-spec": (*mistakes.DOIT, "group_norm"),
    "missing-attribute": (*mistakes.DOIT, "group_norm"),
    "stale-lock": (),
    "compile-error": (*mistakes.DOIT, "compile:group_norm"),
}


def named(name: str) -> Any:
    return next(mistake for mistake in mistakes.MISTAKES if mistake.name == name)


@pytest.mark.parametrize("name", ALONE)
def test_the_last_screen_names_the_mistake(name: str, tmp_path: Path) -> None:
    mistake = named(name)
    project = mistakes.make_project(REPOSITORY, tmp_path, seconds=3600)
    read = mistakes.read(REPOSITORY, project, replace(mistake, command=ALONE[name] or mistake.command))
    assert read.missing() == [], read.seen.last


def test_a_cause_that_has_scrolled_off_is_missing() -> None:
    """Planted: a message with thirty lines behind it; the words are there, in no last screen."""
    message = (
        "run 1 has ended, and a process that it started still holds build/lock. Wait, or stop it: kill 2\r\n"
        "That is safe. Then repeat your command\r\n"
    )
    read = mistakes.Read(named("stale-lock"), shown("first\r\n" + message + "more\r\n" * 30))
    assert (read.cause, read.missing()) == (2, ["cause", "where", "command"])
    assert mistakes.Read(named("stale-lock"), shown(message)).missing() == []


def test_a_word_that_the_edge_of_the_terminal_cuts_is_found() -> None:
    text = "x" * (COLUMNS - 4) + " has ended, and a process that it started still holds build/lock"
    assert mistakes.Read(named("stale-lock"), shown(text)).cause == 1


@pytest.mark.deep
def test_every_mistake() -> None:
    command = [sys.executable, "benchmarks/mistakes.py"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
