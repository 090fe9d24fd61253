"""The page in light and dark, narrow, and for a screen reader. A page with 10,000 cells opens; it prints how long that
takes. The page neither runs nor loads what is in the texts that it shows. The table of operators.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from opmatrix.addons.mutate.scores import MutationScore
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import CheckRecord, Verdict
from opmatrix.report import history
from opmatrix.report import page as html_page
from opmatrix.report.page import Background
from opmatrix.report.report_json import document
from tests.report.in_browser.page import COLOURS, FOUND, Page, emulated, failing_page, write
from tests.report.many import BACKGROUND, ENVIRONMENTS, GRAPH, checks, records, verdict

pytestmark = pytest.mark.browser

# Contrast as WCAG 2.1 has it: https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio
CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const luminance = (colour, below) => {
  canvas.fillStyle = below;
  canvas.fillRect(0, 0, 1, 1);
  canvas.fillStyle = colour;
  canvas.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
return arguments[0].map((selector) => {
  const element = document.querySelector(selector), paper = getComputedStyle(document.documentElement).backgroundColor;
  let behind = element;
  while (behind && getComputedStyle(behind).backgroundColor === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
  const ground = behind ? getComputedStyle(behind).backgroundColor : paper;
  const [a, b] = [luminance(getComputedStyle(element).color, paper), luminance(ground, paper)].sort((x, y) => y - x);
  return [selector, (a + 0.05) / (b + 0.05)];
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(shown: Page, scheme: str) -> None:
    selectors = ["td.verified", "td.mismatched", "td.failed", "td.unsupported", "h1", "#versions", "#legend", "#keys",
                 ".chip", ".chip small", '.chip[aria-pressed="true"]', "legend", ".copy", "pre.text", ".cases th",
                 ".why td:last-child", ".fault button", "#detail h3", "#detail h3 .note", "h1", "#sentence", "#notes",
                 ".cause .soft", ".command code", ".reason"]  # fmt: skip
    with emulated(shown.driver, width=1440, scheme=scheme):
        shown.chip("ort", "1.31")
        shown.chip("ort", "1.16")
        shown.one("td.mismatched").click()
        red, green, blue = shown.run(
            "return getComputedStyle(document.documentElement).backgroundColor.match(/[0-9]+/g).map(Number)"
        )
        assert (red + green + blue < 150) == (scheme == "dark")
        assert [(s, round(ratio, 2)) for s, ratio in shown.run(CONTRAST, selectors) if ratio < 4.5] == []
        shown.press("2")
        assert [(s, round(ratio, 2)) for s, ratio in shown.run(CONTRAST, selectors[:4]) if ratio < 4.5] == []


COMPAT = [
    {"op": op, "torch": "2.13", "rows": [
        {"name": "torch.compile", "outcome": "works", "detail": ""},
        {"name": "torch.vmap", "outcome": outcome, "detail": "case drawn (x: float32 (2, 6, 7, 6)): in_dims=(0, None)"},
        {"name": "torch.func.grad", "outcome": "refused", "detail": "torch_op.py has no backward()"},
    ]}
    for op, outcome in (("modulated_deform_conv", "works"), ("modulated_deform_conv_backward", "failed"))
]  # fmt: skip


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_works_beyond_eager_mode_is_readable(
    driver: webdriver.Chrome, tmp_path: Path, scheme: str, width: int
) -> None:
    page = Page(driver, write(tmp_path / "index.html", FOUND, compat=COMPAT))
    with emulated(driver, width=width, scheme=scheme):
        driver.get(page.address)
        assert page.run("return [...document.querySelectorAll('#compat details')].map((d) => d.open)") == [False, True]
        page.one("#compat summary").click()
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        lines = "return [...document.querySelectorAll('#compat .row')].map((e) => e.getClientRects().length)"
        assert page.run(lines) == [1] * 10, "a mark and its name are on one line"
        selectors = ["#compat h2", "#compat summary", "#compat .row", "#compat .wrong", "#compat .soft"]
        assert [(s, round(ratio, 2)) for s, ratio in page.run(CONTRAST, selectors) if ratio < 4.5] == []
        assert page.texts("#compat .wrong") == ["✗\u00a0torch.vmap"] * 2


AXE = Path(__file__).parents[1] / "axe" / "axe.min.js"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_axe_finds_nothing(driver: webdriver.Chrome, tmp_path: Path, scheme: str, width: int) -> None:
    """axe-core 4.14.1 runs with all of its rules on the page with everything unfolded, and again with an open cell."""
    assert sha256(AXE.read_bytes()).hexdigest() == "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
    address, _ = failing_page(tmp_path)
    with emulated(driver, width=width, scheme=scheme):
        driver.get(address)
        page = Page(driver, address)
        page.run("document.querySelectorAll('.fold').forEach((button) => button.click())")
        page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert findings(driver) == []
        page.one("td.mismatched").click()
        assert findings(driver) == []
        page.run(
            "document.querySelector('h1').style.color = '#ddd'; document.querySelector('h1').style.background = '#eee'"
        )
        assert findings(driver) == ["color-contrast: #answer"]


def findings(driver: webdriver.Chrome) -> list[str]:
    """Return axe's violations as ``rule: selector``. The driver's scripts are not subject to the page's policy."""
    if not driver.execute_script("return Boolean(window.axe)"):
        driver.execute_script(AXE.read_text())
    found: list[str] = driver.execute_async_script("""
        const done = arguments[0];
        axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
          done(violations.flatMap(({ id, nodes }) => nodes.map(({ target }) => `${id}: ${target.join(" ")}`))))""")
    return found


def test_a_narrow_page_does_not_scroll_sideways(shown: Page) -> None:
    with emulated(shown.driver, width=400):
        shown.one("td.mismatched").click()
        assert shown.run("return document.documentElement.scrollWidth <= innerWidth")
        assert shown.run("const d = document.getElementById('detail'); return d.scrollWidth <= d.clientWidth")
        shown.press(Keys.ENTER)
        assert shown.run("return document.activeElement.id") == "detail"


@pytest.mark.slow
def test_ten_thousand_cells_open(
    driver: webdriver.Chrome, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Measured: 0.5 CPU s of the page's thread, 0.6 s on two cores with little else to do. Of time by the clock, a busy
    machine takes many times as much."""
    found = records(38, cases=12)
    assert len(found) > 10_000
    address = write(tmp_path / "index.html", found)
    driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    taken = []
    for _ in range(3):
        driver.get("about:blank")
        before = busy(driver)
        driver.get(address)
        # The page is complete when it is painted after its script: two frames later.
        clock = driver.execute_async_script("""
            const done = arguments[0], loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
            requestAnimationFrame(() => requestAnimationFrame(() => done(loaded / 1000)))""")  # fmt: skip
        taken.append((busy(driver) - before, clock))
    cpu, clock = min(taken)
    record_property("seconds", cpu)
    print(f"{len(found)} cells opened in {cpu:.2f} CPU s, {clock:.2f} s")
    assert len(Page(driver, "").all("td[data-i]")) == len(found)
    before = busy(driver)
    Page(driver, "").chip("ort", "1.21")
    print(f"a filter answered in {busy(driver) - before:.2f} CPU s")
    assert 0 < len(Page(driver, "").all("td[data-i]")) < len(found)


def busy(driver: webdriver.Chrome) -> float:
    """Return the CPU seconds of the page's thread so far."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(m["value"] for m in metrics if m["name"] == "TaskDuration"))


HOSTILE = "</script><img src=x onerror=document.title='owned'><b>&amp;"


def test_hostile_texts_stay_texts(driver: webdriver.Chrome, tmp_path: Path) -> None:
    graph = GRAPH | {"inputs": [[0, HOSTILE, HOSTILE]]}
    wrong = verdict(HOSTILE, FOUND[0].cell, "failed", detail=HOSTILE)
    driver.get(write(tmp_path / "index.html", [wrong] * 2,
                     Background(log=HOSTILE, pictures={HOSTILE: graph})))  # fmt: skip
    page_ = Page(driver, "")
    page_.one("td.failed").click()
    assert page_.texts("#detail pre")[0] == HOSTILE
    assert page_.texts("#detail section:last-child pre") == [HOSTILE]
    assert page_.run("return document.querySelector('svg title').textContent") == f"{HOSTILE} {HOSTILE}"
    assert not page_.all("img") and driver.title == "opmatrix report"


def test_the_policy_stops_code_and_requests_of_a_text(shown: Page) -> None:
    """The browser neither runs nor loads anything that gets into the page."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/"
        stopped = shown.driver.execute_async_script("""
            const [address, done] = arguments, stopped = [];
            addEventListener("securitypolicyviolation", (event) => {
              if (stopped.push(event.effectiveDirective) === 3) done(stopped);
            });
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            const image = document.createElement("img");
            image.src = address;
            document.body.append(script, image);
            fetch(address).catch(() => 0)""", address)  # fmt: skip
        with pytest.raises(TimeoutError):
            server.accept()
    assert sorted(stopped) == ["connect-src", "img-src", "script-src-elem"]
    assert shown.driver.title == "opmatrix report"
    for log in ("browser", "performance"):  # both report what the policy stopped
        shown.driver.get_log(log)


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
