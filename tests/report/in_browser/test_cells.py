"""The matrix of cells: marks, filters, keys, the open cell with its graph, checks, and the address of a view."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.wait import WebDriverWait

from opmatrix.records.verdict import Verdict
from tests.report.in_browser.page import FOUND, Page, count
from tests.report.many import cells

pytestmark = pytest.mark.browser


def test_every_cell_is_shown_with_its_mark(shown: Page) -> None:
    assert shown.shown() == len(FOUND) == 4 * len(list(cells()))
    marks = {"verified": "✓", "mismatched": "≠", "failed": "✗", "unsupported": "○"}
    for outcome, mark in marks.items():
        found = shown.texts(f"td.{outcome}")
        assert {*found} == {mark} and len(found) == count(lambda r: r.outcome == outcome)  # noqa: B023 - called at once
    assert shown.one("#totals").text == f"{len(FOUND):,}"
    assert "written 20" in shown.one("#versions").text
    assert "torch 2.13.0+cpu" in shown.one("#versions").text
    assert shown.texts("#matrix thead tr:first-child th")[1:] == [
        "torch 1.13", "torch 2.0", "torch 2.6", "torch 2.9", "torch 2.13", "torch 2.15", "no torch",
    ]  # fmt: skip


def test_cases_are_counted_in_each_cell_although_cells_share_lists(shown: Page) -> None:
    tiles = dict(zip(shown.texts("#tiles dt"), shown.texts("#tiles dd:not(.more)"), strict=True))
    assert tiles["cases"] == f"{sum(len(r.cases) for r in FOUND):,}"


def test_the_versions_of_other_environments_are_a_table(shown: Page) -> None:
    folded = shown.one("#environments summary")
    assert folded.text == "Versions in 2 environments besides the main one"
    assert not shown.one("#environments table").is_displayed()
    folded.click()
    assert shown.one("#environments table").text.splitlines() == [
        "environment python torch numpy onnxruntime", "torch2.9 3.11.7 2.9.1+cpu 2.3.1", "ort1.16 3.11.2 1.26.4 1.16.3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("facet", "value", "passes"),
    [
        ("outcome", "failed", lambda r: r.outcome == "failed"),
        ("change", "broken", lambda r: r.outcome in ("failed", "mismatched")),
        ("torch", "2.13", lambda r: r.cell.torch == "2.13"),
        ("torch", "null", lambda r: r.cell.torch is None),
        ("exporter", "dynamo", lambda r: r.cell.exporter == "dynamo"),
        ("opset", "20", lambda r: r.cell.opset == 20),
        ("ort", "1.21", lambda r: r.cell.ort == "1.21"),
    ],
)
def test_a_filter_shows_its_cells(shown: Page, facet: str, value: str, passes: Callable[[Verdict], bool]) -> None:
    expected = count(passes)
    chip = f'.chip[data-facet="{facet}"][data-value="{value}"]'
    assert shown.one(f"{chip} small").text == str(expected)
    shown.chip(facet, value)
    assert shown.shown() == expected > 0
    assert shown.one(chip).get_attribute("aria-pressed") == "true"
    shown.chip(facet, value)
    assert shown.shown() == len(FOUND)


def test_filters_combine(shown: Page) -> None:
    shown.chip("ort", "1.31")
    shown.chip("ort", "1.24")
    shown.chip("outcome", "failed")
    shown.one("#operator").send_keys("_01, operator_03")
    expected = count(lambda r: r.cell.ort in ("1.31", "1.24") and r.outcome == "failed" and r.op[-2:] in ("01", "03"))
    assert shown.shown() == expected > 0
    assert shown.one("#totals").text == f"{expected} of {len(FOUND):,}"
    shown.one("#operator").send_keys("nothing")
    shown.one("#clear").click()
    assert shown.shown() == len(FOUND) and not shown.all("#clear:not([hidden])")


def test_filters_without_a_match_have_a_message(shown: Page) -> None:
    shown.one("#operator").send_keys("no such operator".replace(" ", "-"))
    assert shown.one("#matrix").text == "No cell passes these filters."
    shown.press(Keys.ESCAPE)
    assert shown.shown() in (0, len(FOUND))  # a search field may clear itself


def test_a_click_opens_cases_log_replay_and_graph(shown: Page) -> None:
    wrong = next(r for r in FOUND if r.outcome == "mismatched")
    shown.one("td.mismatched").click()
    assert shown.opened() == str(wrong)
    section = shown.one("#detail").text
    assert f"@{wrong.cell}" in section and "newly broken: it was verified" in section
    assert wrong.detail in section and "line" in shown.texts("#detail section:last-child pre")[0]
    assert shown.texts(".cases td:nth-child(2) button") == ["case_0", "case_1"]
    assert shown.texts('.cases tr[aria-current="true"] td:nth-child(2)') == ["case_1"], "what is wrong is chosen"
    assert shown.texts(".cases td:nth-child(6)") == ["float64", "declared dtype"]
    assert shown.run("return document.querySelectorAll('.cases td:nth-child(6)')[1].title").endswith(
        "discontinuous: ties"
    )
    assert wrong.replay("case_1") in section
    shown.all(".cases button")[0].click()
    assert wrong.replay("case_0") in shown.one("#detail").text


def test_the_graph_marks_custom_nodes_by_shape_and_text(shown: Page) -> None:
    shown.one("td.verified").click()
    texts = shown.run("return [...document.querySelectorAll('#detail svg text')].map((e) => e.textContent)")
    assert sorted(texts) == sorted(
        ["X", "float32[2, n]", "unused", "float32[]", "Abs", "mygroupnorm", "custom: mydomain v2", "Reshape", "[0, -1]",
         "Add", "Y", "float32[2, n]"]
    )  # fmt: skip
    assert len(shown.all("#detail svg path.custom")) == len(shown.all("#detail svg path.inner")) == 1
    assert len(shown.all("#detail svg rect.node")) == 3 and len(shown.all("#detail svg rect.rim")) == 3
    assert len(shown.all("#detail svg path.edge")) == 6
    label = shown.one("#detail svg").get_attribute("aria-label")
    assert label and "4 nodes, 1 of them custom" in label
    shown.one("#detail details summary").click()
    assert "mydomain::mygroupnorm v2(%2, -) → %3 {eps=1e-05}" in shown.texts("#detail li")


def test_no_boxes_of_a_graph_overlap(shown: Page) -> None:
    shown.one("td.verified").click()
    overlapping = shown.run("""
        const boxes = [...document.querySelectorAll("#detail svg g")].map((g) => g.getBoundingClientRect());
        const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
        return boxes.flatMap((a, i) => boxes.slice(i + 1).filter((b) => !apart(a, b))).length""")
    assert overlapping == 0
    outside = shown.run("""
        const frame = document.querySelector("#detail svg").getBoundingClientRect();
        const within = (box) => box.left >= frame.left && box.right <= frame.right
          && box.top >= frame.top && box.bottom <= frame.bottom;
        const drawn = [...document.querySelectorAll("#detail svg g, #detail svg path")];
        return drawn.filter((element) => !within(element.getBoundingClientRect())).length""")
    assert outside == 0


def test_the_keyboard_reaches_everything(shown: Page) -> None:
    shown.run("document.querySelector('td[tabindex=\"0\"]').focus()")
    first = shown.focused
    assert first.startswith("operator_00-custom@torch1.13-legacy-opset9-ort1.16, verified, ")
    shown.press(Keys.ARROW_RIGHT)
    assert "torch1.13-legacy-opset12-ort1.16" in shown.focused
    shown.press(Keys.ARROW_DOWN)
    assert "torch1.13-legacy-opset12-ort1.18" in shown.focused
    shown.press(Keys.END)
    assert "torch2.15-dynamo-opset25-ort1.18" in shown.focused
    shown.press(Keys.HOME, Keys.ARROW_UP, Keys.ARROW_LEFT, Keys.ARROW_UP)
    assert shown.focused == first, "at an edge it stays where it is"
    assert len(shown.all('td[tabindex="0"]')) == 1

    shown.press(Keys.ENTER)
    assert shown.opened() and shown.focused == first, "arrows go on from there"
    shown.press(Keys.ARROW_RIGHT)
    assert shown.opened() == "operator_00-custom@torch1.13-legacy-opset12-ort1.16", "the open cell follows"
    shown.press(Keys.ENTER)
    assert shown.run("return document.activeElement.id") == "detail"
    shown.press(Keys.TAB, Keys.ESCAPE)
    assert not shown.opened()
    assert "torch1.13-legacy-opset12-ort1.16" in shown.focused, "back where it was opened"

    wrong = [r for r in FOUND if r.outcome != "verified"]
    seen = set()
    for _ in wrong:
        shown.press("n")
        seen.add(shown.focused.partition(",")[0])
    assert seen == {str(r) for r in wrong}
    last = shown.focused
    shown.press("p", "n")
    assert shown.focused == last
    shown.press("/")
    assert shown.run("return document.activeElement.id") == "operator"
    shown.press("1n")
    assert shown.one("#operator").get_attribute("value") == "1n", "in a field, keys are text"


def test_empty_places_are_skipped(shown: Page) -> None:
    """Row 1.31 has cells without torch at its end; the rows above have none there."""
    shown.run("focusOn(Number(document.querySelector('tbody tr:nth-child(5) td:last-child').dataset.i))")
    assert "@node-opset25-ort1.31" in shown.focused
    shown.press(Keys.ARROW_UP)
    assert "@node-opset25-ort1.31" in shown.focused
    shown.press(Keys.ARROW_DOWN)
    assert shown.focused.startswith("operator_01-custom@node-opset25-ort1.31")


def test_cells_show_tolerances_as_numbers(shown: Page) -> None:
    shown.one('.chip[data-metric="tolerance_used"]').click()
    assert {*shown.texts("td.verified")} == {"20"} and {*shown.texts("td.mismatched")} == {"350"}
    assert {*shown.texts("td.failed")} == {"✗"} and {*shown.texts("td.unsupported")} == {"○"}


def test_checks_are_listed_and_filtered(shown: Page) -> None:
    """The wrong ones are shown with their reason, the others unfold. A check without a value for a filter stays."""
    title = "#checks h2"
    assert shown.texts(title) == ["Checks 5: 2 verified, 2 failed, 1 unsupported"]
    wrong = shown.texts("#checks > .fault")
    assert wrong[0].startswith("✗\noperator_00-kernel@torch2.13") and "3 of 64 elements" in wrong[0]
    assert wrong[1].startswith("✗\nenvironment:torch2.6") and "no network" in wrong[1]
    shown.one("#checks > details > summary").click()
    assert len(shown.all("#checks details .fault")) == 3
    shown.chip("exporter", "node")
    assert shown.texts(title) == ["Checks 5: 2 verified, 2 failed, 1 unsupported"]
    shown.one("#clear").click()
    shown.chip("torch", "2.9")
    assert shown.texts(title) == ["Checks 3: 2 verified, 1 failed"], "those of torch 2.9, and that of no torch"
    shown.chip("outcome", "failed")
    assert shown.texts(title) == ["Checks 1: 1 failed"]
    shown.one("#clear").click()
    shown.one("#operator").send_keys("operator_01")
    assert shown.texts(title) == ["Checks 1: 1 verified"]
    shown.one("#clear").click()


def test_what_is_unsupported_is_listed_by_reason(shown: Page) -> None:
    (fault,) = shown.texts("#faults .fault")
    refused = [r for r in FOUND if r.outcome == "unsupported"]
    assert "ONNX Runtime 1.16 reads opset 19 at most" in fault and f"and {len(refused) - 1} more" in fault
    shown.one("#faults .fault button").click()
    assert shown.opened() == str(refused[0])


def test_the_address_holds_the_view(shown: Page) -> None:
    shown.chip("ort", "1.21")
    shown.chip("torch", "null")
    shown.chip("torch", "2.6")
    shown.one("td.verified").click()
    WebDriverWait(shown.driver, 300).until(lambda driver: "cell=" in driver.current_url)
    hash_, number, opened = shown.run("return location.hash"), shown.shown(), shown.opened()
    shown.driver.get("about:blank")
    shown.driver.get(shown.address + hash_)
    assert (shown.shown(), shown.opened()) == (number, opened)
    assert "torch=null" in hash_ and "cell=operator_00" in hash_
