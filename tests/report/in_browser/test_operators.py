"""The table of operators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from opmatrix.addons.mutate.scores import MutationScore
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import CheckRecord, Verdict
from opmatrix.report import history
from opmatrix.report import page as html_page
from opmatrix.report.report_json import document
from tests.report.in_browser.page import COLOURS, FOUND, Page
from tests.report.many import BACKGROUND, ENVIRONMENTS, checks, verdict

pytestmark = pytest.mark.browser


def test_an_operator_unfolds_its_errors_checks_and_search(driver: webdriver.Chrome, tmp_path: Path) -> None:
    tried = {"check": "search", "examples": 204, "refused": 56, "new_shapes": 80, "attributes": {"eps": 21}}
    tried |= {"dtypes": {"float32": 204}, "large": [11993], "dropped": {}}
    searched = CheckRecord(op="operator_00", check="search", torch="2.13", outcome="verified", results=(tried,),
                           weak=("it refuses much",))  # fmt: skip
    score = MutationScore(op="operator_00", date="2026-11-20", mutants=90, tried=90, seed="", killed=81, survived=4,
                          equivalent=3, invalid=1, stopped=1, marked=0, survivors=("kernel.h:41",))  # fmt: skip
    found = [r for r in FOUND if r.op in ("operator_00", "operator_01") and r.cell.ort == "1.31"]
    records_ = [*checks(), searched]
    report = document(found, ENVIRONMENTS, checks=records_, mutation=[score.as_json(tmp_path)])
    wrong = [verdict(r.op, r.cell, "mismatched") for r in found[:3]]
    history.record(Paths(tmp_path), [*wrong, *found[3:]], records_)
    runs = history.record(Paths(tmp_path), found, records_)
    seconds = {"operator_00": {"verify": 1.25, "compile": 120.0}, "operator_01": {"verify": 2.0}}
    html = html_page.render(report, found, [BACKGROUND] * len(found), records_, runs=runs, seconds=seconds)
    (tmp_path / "index.html").write_text(html)
    driver.get((tmp_path / "index.html").as_uri())
    page = Page(driver, "")
    assert [" ".join(text.split()) for text in page.texts("#overview .bars tr")] == [
        "compile 2 min 0 s",
        "verify 3.3 s",
    ]
    label = page.one('#overview [aria-label^="History"]').get_attribute("aria-label")
    assert label and label.endswith(f": {count_wrong(found)} of {len(found)} wrong")
    first, second = page.texts("#operators tbody tr")
    assert "operator_00" in first and "204, 80 new shapes, 56 refused" in first and "95.2 % of 85" in first
    assert "operator_01" in second and "not tried" in second
    page.one("#operators .fold").send_keys(Keys.ENTER)
    panel = page.one("#operators .panel").text
    assert page.run(COLOURS, "#operators .panel canvas")[0] > 3 and len(page.all("#operators .panel canvas")) == 2
    assert page.texts("#operators .panel .bars th") == ["compile", "verify"]
    assert "it refuses much" in panel and "eps 21" in panel and "81 killed, 4 survived" in panel
    assert page.one("#operators .fold").get_attribute("aria-expanded") == "true"
    page.one("#operators .fold").click()
    assert not page.all("#operators .panel")


def count_wrong(found: Sequence[Verdict]) -> int:
    return sum(r.outcome in ("failed", "mismatched") for r in found)
