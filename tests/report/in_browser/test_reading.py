"""The page in light and dark, narrow, and for a screen reader."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from tests.report.in_browser.page import FOUND, Page, emulated, failing_page, write

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
