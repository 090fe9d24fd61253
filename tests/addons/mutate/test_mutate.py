"""`doit mutate`: its options, its settings and their mistakes. tests/addons/mutate tries mutants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.addons.mutate.command import Scores
from opmatrix.addons.mutate.scores import MutationScore, read_all, write
from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths
from opmatrix.project.settings import read_settings
from opmatrix.report.markdown import percent
from tests.support.projects import ROOT, write_files

DODO = "from opmatrix.commands.dodo import tasks_of\n\ntask_pipeline = tasks_of(__file__)\n"
SETTINGS = '[tool.doit]\nloader = "opmatrix"\n[tool.opmatrix]\nformat = 1\n'


def project(folder: Path, settings: str = "") -> Paths:
    write_files(folder, {"dodo.py": DODO, "pyproject.toml": SETTINGS + settings})
    return Paths(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("minimum = 95", r"minimum: found 95, allowed: a number from 0 to 1, such as 0\.95$"),
        ("minimum = true", r"minimum: found True, allowed: a number from 0 to 1, such as 0\.95$"),
        ("minimum = '95%'", r"minimum: found '95%', allowed: a number from 0 to 1, such as 0\.95$"),
        ("minimun = 0.95", r"minimun: unknown setting, allowed: minimum; did you mean 'minimum'\?$"),
    ],
)
def test_a_mistake_in_the_settings(settings: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"^pyproject\.toml: \[tool\.opmatrix\.mutate\]: {message}"):
        read_settings(project(tmp_path, f"[tool.opmatrix.mutate]\n{settings}\n"), Scores)


def test_the_minimum(tmp_path: Path) -> None:
    assert read_settings(project(tmp_path), Scores).minimum == 0
    assert read_settings(project(tmp_path, "[tool.opmatrix.mutate]\nminimum = 0.95\n"), Scores).minimum == 0.95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "doit mutate: --count and --process take a number from 1 on\n"),
        (["-n", "0"], "doit mutate: --count and --process take a number from 1 on\n"),
        (["--count", "many"], "doit mutate: --count takes a whole number: "),
        (["group_nrom"], "no operator 'group_nrom' in ops/, there is: "),
        (["group_norm", "--count", "9"], "'--count' is taken for an operator: options come before operators\n"),
    ],
)
def test_a_mistake_on_the_command_line(arguments: list[str], message: str) -> None:
    command = [sys.executable, "-m", "doit", "mutate", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(message) and not done.stdout, done.stderr


def score(*, killed: int = 0, survived: int = 0, equivalent: int = 0) -> MutationScore:
    return MutationScore(
        op="double", date="2026-11-22", mutants=80, tried=60, seed="0", killed=killed, survived=survived,
        equivalent=equivalent, invalid=0, stopped=0, marked=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("killed", "survived", "shown"), [(57, 3, "95.0%"), (2, 1, "66.6%"), (5999, 1, "99.9%"), (1, 0, "100.0%")]
)
def test_a_share_is_rounded_down(killed: int, survived: int, shown: str) -> None:
    assert percent(score(killed=killed, survived=survived).score) == shown


def test_no_mutant_that_counts_has_no_score() -> None:
    assert score(equivalent=3).score is None
    assert percent(None) == "-"


def test_scores_are_written_and_read(tmp_path: Path) -> None:
    paths, found = Paths(tmp_path), score(killed=2)
    write(paths, found)
    assert read_all(paths, ["double", "other"]) == [found]
    paths.mutation_score("double").write_text('{"op": "double"}')
    assert read_all(paths, ["double"]) == []
