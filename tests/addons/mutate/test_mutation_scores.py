"""Every form of the report has the scores of `doit mutate`, with date, and whether the files are still the same."""

from __future__ import annotations

from pathlib import Path

from opmatrix.addons.mutate.scores import MutationScore
from opmatrix.basics.files import sha256
from opmatrix.report import markdown, page
from opmatrix.report.report_json import document, parse, text

KERNEL = "native/norm/kernel.h"


def score(root: Path) -> MutationScore:
    path = root / KERNEL
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("int x = 1;\n")
    return MutationScore(
        op="norm", date="2026-11-22", mutants=300, tried=60, seed="0", killed=57, survived=3, equivalent=0, invalid=0,
        stopped=0, marked=0, gates={"verify": 57}, survivors=(f"{KERNEL}:1: constant: int x = «1»; -> 2",),
        files={KERNEL: sha256(path)},
    )  # fmt: skip


def test_the_scores_in_each_form(tmp_path: Path) -> None:
    report = document([], {"main": {"python": "3.11"}}, mutation=[score(tmp_path).as_json(tmp_path)])
    (found,) = report["mutation"]
    assert (found["op"], found["score"], found["date"], found["current"]) == ("norm", 0.95, "2026-11-22", True)
    assert "| norm | 95.0% | 57 | 3 | 2026-11-22 |" in markdown.render(report, [])
    (shown,) = page.data(report, [], [])["mutation"]
    assert shown == found and shown["survivors"] == [f"{KERNEL}:1: constant: int x = «1»; -> 2"]
    read = parse(text(report))
    assert read is not None and read["mutation"] == [found]


def test_a_score_of_an_earlier_kernel_says_so(tmp_path: Path) -> None:
    old = score(tmp_path)
    (tmp_path / KERNEL).write_text("int x = 2;\n")
    report = document([], {"main": {"python": "3.11"}}, mutation=[old.as_json(tmp_path)])
    assert report["mutation"][0]["current"] is False
    assert "| norm | 95.0% | 57 | 3 | 2026-11-22, of an earlier version |" in markdown.render(report, [])


def test_nothing_is_shown_without_scores() -> None:
    assert "Mutants" not in markdown.render(document([], {"main": {"python": "3.11"}}), [])
