"""`doit mutate`: its options, its settings and their mistakes, and its scores in every form of the report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opmatrix.addons.mutate.command import Scores
from opmatrix.addons.mutate.cpp import parse
from opmatrix.addons.mutate.scores import MutationScore, read_all, write
from opmatrix.basics.errors import ToolchainError, UsageError
from opmatrix.basics.files import sha256
from opmatrix.project.paths import Paths
from opmatrix.project.settings import read_settings
from opmatrix.report import markdown, page, report_json
from opmatrix.report.markdown import percent
from opmatrix.report.report_json import document
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


def test_without_tree_sitter_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tree_sitter_cpp", None)
    with pytest.raises(ToolchainError) as error:
        parse("int a;")
    assert str(error.value) == (
        "doit mutate: tree_sitter_cpp is not installed, which reads the kernels as syntax trees. "
        "Run: pip install 'opmatrix[mutate]'"
    )


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


KERNEL = "native/double/kernel.h"


def score(root: Path | None = None, **counts: int) -> MutationScore:
    """Return a score of the kernel in a folder."""
    files = {}
    if root:
        write_files(root, {KERNEL: "int x = 1;\n"})
        files = {KERNEL: sha256(root / KERNEL)}
    return MutationScore(
        op="double", date="2026-11-22", mutants=80, tried=60, seed="0", gates={"verify": 57}, files=files,
        survivors=(f"{KERNEL}:1: constant: int x = «1»; -> 2",),
        **dict.fromkeys(("killed", "survived", "equivalent", "invalid", "stopped", "marked"), 0) | counts,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("killed", "survived", "shown"),
    [(57, 3, "95.0%"), (2, 1, "66.6%"), (5999, 1, "99.9%"), (1, 0, "100.0%"), (0, 0, "-")],
)
def test_a_share_is_rounded_down(killed: int, survived: int, shown: str) -> None:
    assert percent(score(killed=killed, survived=survived, equivalent=3).score) == shown


def test_scores_are_written_and_read(tmp_path: Path) -> None:
    paths, found = Paths(tmp_path), score(killed=2)
    write(paths, found)
    assert read_all(paths, ["double", "other"]) == [found]
    paths.mutation_score("double").write_text('{"op": "double"}')
    assert read_all(paths, ["double"]) == []


def reported(root: Path, *scores: MutationScore) -> dict[str, Any]:
    return document([], {"main": {"python": "3.11"}}, mutation=[one.as_json(root) for one in scores])


def test_the_scores_in_each_form_of_the_report(tmp_path: Path) -> None:
    one = score(tmp_path, killed=57, survived=3)
    report = reported(tmp_path, one)
    (found,) = report["mutation"]
    assert (found["op"], found["score"], found["date"], found["current"]) == ("double", 0.95, "2026-11-22", True)
    assert "| double | 95.0% | 57 | 3 | 2026-11-22 |" in markdown.render(report, [])
    (shown,) = page.data(report, [], [])["mutation"]
    assert shown == found and shown["survivors"] == [f"{KERNEL}:1: constant: int x = «1»; -> 2"]
    read = report_json.parse(report_json.text(report))
    assert read is not None and read["mutation"] == [found]
    (tmp_path / KERNEL).write_text("int x = 2;\n")
    report = reported(tmp_path, one)
    assert report["mutation"][0]["current"] is False
    assert "| double | 95.0% | 57 | 3 | 2026-11-22, of an earlier version |" in markdown.render(report, [])
    assert "Mutants" not in markdown.render(reported(tmp_path), [])
