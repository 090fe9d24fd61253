"""The banner, the causes of what is wrong, and the errors of a failing case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from opmatrix.judge import mismatch
from opmatrix.records.verdict import CheckRecord, FailedStep, Verdict
from opmatrix.report import page as html_page
from opmatrix.report.page import Background
from opmatrix.report.report_json import document
from opmatrix.spec import Tolerance
from tests.report.in_browser.page import COLOURS, FOUND, Page, count, emulated, failing_page
from tests.report.many import BACKGROUND, ENVIRONMENTS, cells, verdict

pytestmark = pytest.mark.browser


def test_the_banner_answers_whether_it_is_right(shown: Page) -> None:
    wrong, right = count(lambda r: r.outcome in ("failed", "mismatched")), count(lambda r: r.outcome == "verified")
    (more,) = shown.all("#causes > details.more")
    assert len(shown.all(".cause")) == 8
    more.find_element(By.CSS_SELECTOR, "summary").click()
    WebDriverWait(shown.driver, 300).until(lambda _: len(shown.all(".cause")) > 8)
    assert shown.one("h1").text == f"✗ Not verified: {len(shown.all('.cause'))} causes"
    assert shown.one("#sentence").text == (
        f"{wrong} of {len(FOUND):,} cells and 2 of 5 checks are wrong. {right} cells are verified."
    )
    notes = shown.texts("#notes li")
    assert f"{count(lambda r: r.outcome == 'unsupported')} cells unsupported" in notes
    assert f"since the previous run: ▼ {wrong} newly broken" in notes[-1]
    assert shown.one("#share").get_attribute("aria-label") == (
        f"Of {len(FOUND)} cells: {right} verified, {count(lambda r: r.outcome == 'mismatched')} mismatched, "
        f"{count(lambda r: r.outcome == 'failed')} failed, {count(lambda r: r.outcome == 'unsupported')} unsupported"
    )


@pytest.mark.parametrize(
    ("found", "answer", "sentence"),
    [
        (FOUND[:1], "✓ Verified", "ONNX Runtime computes what the references compute, in all 1 cell."),
        ([], "○ Nothing verified", "No cell was asked for."),
        ([verdict("op", FOUND[0].cell, "unsupported", detail="too old")], "○ Nothing verified",
         "Every cell is unsupported, for a stated reason."),
    ],
)  # fmt: skip
def test_the_banner_without_failures(
    driver: webdriver.Chrome, tmp_path: Path, found: list[Verdict], answer: str, sentence: str
) -> None:
    report = document(found, ENVIRONMENTS)
    (tmp_path / "index.html").write_text(html_page.render(report, found, [BACKGROUND] * len(found)))
    driver.get((tmp_path / "index.html").as_uri())
    page = Page(driver, "")
    assert (page.one("h1").text, page.one("#sentence").text) == (answer, sentence)
    assert not page.all(".cause")


def test_equal_causes_are_one_for_all_their_cells(shown: Page) -> None:
    """The first is open, with the reason and the command; the others are built when they are opened."""
    titles = shown.texts(".cause > summary")
    by_operator = {r.op: [x for x in FOUND if x.op == r.op and x.outcome == "failed"] for r in FOUND}
    for op, cells_ in by_operator.items():
        assert any(f"{op}-custom" in t and "died of SIGSEGV" in t and f"{len(cells_)} cells" in t for t in titles)
    kernel = next(t for t in titles if "operator_00-custom" in t and "3 of 64 elements" in t)
    assert ", 1 check" in kernel, "the kernel is wrong in torch too"
    assert shown.run("return [...document.querySelectorAll('.cause')].map((d) => d.open)") == [
        True, *[False] * (len(titles) - 1),
    ]  # fmt: skip
    assert len(shown.all(".cause .command")) == 1
    first = next(r for r in FOUND if r.outcome == "failed")
    assert shown.texts(".cause[open] .command code") == [
        f"./run python -m opmatrix verify {first.op} --lowering custom --cell {first.cell}"
    ]
    at = titles.index(kernel)
    shown.all(".cause > summary")[at].click()
    card = shown.all(".cause")[at]
    wrong = [r for r in FOUND if r.op == "operator_00" and r.outcome == "mismatched"]
    assert wrong[0].replay("case_1") in card.text and f"In {len(wrong)} cells" in card.text
    assert len(card.find_elements(By.CSS_SELECTOR, "svg")) == 1
    assert shown.one("#gone summary").text == "Gone since the previous run: 1"


def test_a_failed_step_is_one_cause_of_all_that_it_blocks(driver: webdriver.Chrome, tmp_path: Path) -> None:
    """Its command runs the step again; verify would not."""
    blocked = FailedStep(group="compile", name="op")
    cells_ = list(cells())[:3]
    found = [
        replace(verdict("op", c, "failed", detail="not run: compile:op failed: no such thing"), blocked_by=blocked)
        for c in cells_
    ]
    found += [verdict("other", cells_[0])]
    check = CheckRecord(
        op="op", check="kernel", torch="2.13", outcome="failed", detail="no library", blocked_by=blocked
    )
    behind = [Background(log="kernel.h:3:1: error: no such thing")] * 3 + [BACKGROUND]
    report = document(found, ENVIRONMENTS, checks=[check])
    (tmp_path / "index.html").write_text(html_page.render(report, found, behind, [check]))
    driver.get((tmp_path / "index.html").as_uri())
    page = Page(driver, "")
    assert page.one("h1").text == "✗ Not verified: 1 cause"
    assert page.texts("#notes li")[0] == "3 cells did not run, because an earlier step failed"
    assert page.texts(".cause > summary h2") == ["compile:op"] and "3 cells, 1 check" in page.one(".cause summary").text
    assert page.texts(".cause .command code") == ["./run doit compile:op"]
    assert page.texts(".cause .sentence") == ["no such thing"]
    assert page.texts(".cause .data pre") == ["kernel.h:3:1: error: no such thing"]


def test_a_cell_of_a_cause_opens(shown: Page) -> None:
    shown.run("document.querySelectorAll('.cause .body > details').forEach((d) => { d.open = true; })")
    shown.all(".cause .place .chip")[1].click()
    wrong = [r for r in FOUND if r.op == "operator_00" and r.outcome == "failed"]
    assert shown.opened() == str(wrong[1])


def test_a_failing_case_has_its_errors_above_the_fold(driver: webdriver.Chrome, tmp_path: Path) -> None:
    """Why, the command, where in the tensor, and the graph; the policy stops nothing that the plots do."""
    address, record = failing_page(tmp_path)
    driver.get_log("browser")
    with emulated(driver, width=1280):
        driver.get(address)
        page = Page(driver, address)
        WebDriverWait(driver, 300).until(lambda _: len(page.all(".plots canvas")) == 5)
        for selector in (".cause .why", ".cause .command", ".cause .where canvas", ".cause svg"):
            assert page.one(selector).rect["y"] + page.one(selector).rect["height"] < 800, selector
        assert page.texts(".plots figcaption b") == [
            "Where it is wrong", "Errors in ULP", "Error against magnitude", "Actual against expected",
            "Error against size",
        ]  # fmt: skip
        assert all(colours > 3 for colours in page.run(COLOURS, ".plots canvas"))
        facts = page.one(".cause .facts").text
        assert f"{record['differing']} of 420 elements of y float32[2, 6, 5, 7]" in facts.replace("\n", " ")
        assert "ONNX Runtime, optimised with reference in float64" in facts and "eps=1e-05" in facts
        assert "over all cases\nwrong from W = 17 on (2 of 2 cases; right up to W = 16 in 3)" in facts
        by_size = "return document.querySelector('[aria-label^=\"Error against size\"]').getAttribute('aria-label')"
        assert page.run(by_size) == "Error against size: 2 wrong and 4 other cases, by W"
        Select(page.one('[aria-label="Size of the cases"]')).select_by_visible_text("N")
        assert page.run(by_size) == "Error against size: 2 wrong and 4 other cases, by N"
        # The map that is shown first has the wrong elements in one column.
        label = "return document.querySelector('.where canvas').getAttribute('aria-label')"
        assert page.run(label) == "axis 1 (6) down, axis 3 (7) across: 6 of 42 fields are wrong"
        Select(page.one(".cause figcaption select")).select_by_visible_text("axis 0 (2) down, axis 3 (7) across")
        assert page.run(label) == "axis 0 (2) down, axis 3 (7) across: 2 of 14 fields are wrong"
        ActionChains(driver).move_to_element_with_offset(page.one(".where canvas"), 0, -5).perform()
        assert page.one(".where .hover").text == "[0, :, :, 3]: equal"
        page.run("document.querySelectorAll('.cause details').forEach((d) => { d.open = true; })")
        around = page.texts(".around tr.wrong")
        assert len(around) == 1 and "NaN" in around[0] and "[1, 5, 4, 6]" in around[0]
        links = {link.text: str(link.get_attribute("href")) for link in page.all(".cause .links a")}
        cell = record_cell(page)
        where = f"--lowering custom --cell {cell.partition('@')[2]} --case case_1"
        assert page.texts(".cause .command code")[-1] == f"./run python -m opmatrix save-case operator_00 {where}"
        assert links["log"].endswith(f"/log/verify/{cell}.log".replace("@", "%40"))
        assert links["model"].endswith("/static/model.onnx") and links["data"].endswith("/data/operator_00/static")
        assert driver.get_log("browser") == []


def test_a_search_and_a_gradient_have_their_errors(driver: webdriver.Chrome, tmp_path: Path) -> None:
    """A drawn input can be taken away, a gradient where its record says so."""
    expected = np.linspace(1.0, 2.0, 30).reshape(5, 6)
    wrong = expected + np.outer(np.arange(5) == 3, np.ones(6))
    found, kinds = [r for r in FOUND if r.outcome == "verified"][:4], ("search", "gradient")
    failed = [
        CheckRecord(op="operator_00", check=kind, torch="2.13", outcome="failed", detail=f"{kind}: it differs")
        for kind in kinds
    ]
    measured = mismatch.measure(wrong, expected, tolerance=Tolerance(rtol=1e-6, atol=0.0))
    common = {"model": "m", "attributes": {}, "inputs": [], "actual_is": "this", "expected_is": "that", **measured}
    each = [
        {"case": "found_1", "output": "y", **common},
        {"case": "gradient_a", "output": "gradient of x", "saved": False, **common},
    ]
    shown = {str(check): {f"{record['case']}/m": n} for n, (check, record) in enumerate(zip(failed, each, strict=True))}
    failing = {"records": each, "shown": shown, "failing": 2}
    report = document(found, ENVIRONMENTS, checks=failed)
    (tmp_path / "index.html").write_text(html_page.render(report, found, [BACKGROUND] * len(found), failed, failing))
    driver.get((tmp_path / "index.html").as_uri())
    page = Page(driver, "")
    page.run("document.querySelectorAll('.cause').forEach((card) => { card.open = true; })")
    WebDriverWait(driver, 300).until(lambda _: len(page.all(".cause .plots canvas")) == 8)
    facts = [text.replace("\n", " ") for text in page.texts(".cause .facts")]
    assert "6 of 30 elements of y float64[5, 6]" in facts[0]
    assert "6 of 30 elements of gradient of x float64[5, 6]" in facts[1]
    commands = page.texts(".cause .command code")
    assert "./run python -m opmatrix save-case operator_00 --case found_1" in commands
    assert not any("gradient_a" in command for command in commands)


def test_a_cause_does_not_show_the_errors_of_another_case(driver: webdriver.Chrome, tmp_path: Path) -> None:
    address, _ = failing_page(tmp_path, case="case_9")
    driver.get(address)
    page = Page(driver, address)
    assert "--case case_1" in page.one(".cause .command").text
    assert page.texts(".cause .data") == ["line"], "the log"


def record_cell(page: Page) -> str:
    """Return the cell whose case the first cause shows, from the command."""
    words = page.one(".cause .command code").text.split()
    return f"operator_00-custom@{words[words.index('--cell') + 1]}"
