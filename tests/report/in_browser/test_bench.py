"""The times of `doit bench`: what the plots draw, read from their pixels, and what the pointer and the keys show."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from opmatrix.addons.bench import times as bench_times
from opmatrix.project.paths import Paths
from opmatrix.report import page as html_page
from opmatrix.report.report_json import document
from tests.addons.bench import timed
from tests.report.in_browser.page import FOUND, Page, emulated, requests
from tests.report.in_browser.test_page import findings
from tests.report.many import BACKGROUND, ENVIRONMENTS, verdict

pytestmark = pytest.mark.browser

# Return the size of a plot, and the places in it of the pixels that have a colour of the page.
PIXELS = """
const [title, variable] = arguments;
const figure = [...document.querySelectorAll("#bench figure")].find((one) => one.innerText.startsWith(title));
const canvas = figure.querySelector("canvas"), { width, height } = canvas, frame = canvas.getBoundingClientRect();
const inner = figure.querySelector(".u-over").getBoundingClientRect();
const left = Math.round(inner.left - frame.left), top = Math.round(inner.top - frame.top), found = [];
const brush = new OffscreenCanvas(1, 1).getContext("2d");
brush.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(variable);
brush.fillRect(0, 0, 1, 1);
const wanted = brush.getImageData(0, 0, 1, 1).data;
const { data } = canvas.getContext("2d").getImageData(0, 0, width, height);
for (let y = top; y < top + inner.height; y++) for (let x = left; x < left + inner.width; x++) {
  const at = 4 * (y * width + x), near = [0, 1, 2].every((c) => Math.abs(data[at + c] - wanted[c]) < 5);
  if (data[at + 3] > 128 && near) found.push([x - left, y - top]);
}
return [inner.width, inner.height, found];"""


def shows(page: Page, start: str) -> None:
    """Wait until the first plot's line of text begins so: it is drawn in the next frame."""
    WebDriverWait(page.driver, 300).until(
        lambda _: page.texts("#bench output")[0].startswith(start), f"{page.texts('#bench output')[0]!r}, not {start!r}"
    )


def shown_with(driver: webdriver.Chrome, folder: Path, *found: Mapping[str, Any]) -> Page:
    """Open a page with times. The console stays empty, and the page reads only its file."""
    paths = Paths(folder)
    for one in found:
        timed.write(paths, dict(one))
    cells = [verdict(one["op"], FOUND[0].cell) for one in found]
    times = bench_times.read_all(paths, [one["op"] for one in found])
    html = html_page.render(document(cells, ENVIRONMENTS), cells, [BACKGROUND] * len(cells), bench=times, root=folder)
    (folder / "index.html").write_text(html)
    address = (folder / "index.html").as_uri()
    driver.get("about:blank")
    for log in ("performance", "browser"):
        driver.get_log(log)
    driver.get(address)
    page = Page(driver, address)
    if page.all("#bench .plots"):
        WebDriverWait(driver, 300).until(
            lambda _: len(page.all("#bench .plots canvas")) == len(page.all("#bench .plot"))
        )
    assert driver.get_log("browser") == []
    assert {url.partition("#")[0] for url in requests(driver)} <= {address, "data:,"}
    return page


def pixels(page: Page, title: str, variable: str) -> list[tuple[float, float]]:
    """Return the places of the pixels with a colour: x from the left and y from below, both of 1."""
    wide, high, found = page.run(PIXELS, title, variable)
    return [((x + 0.5) / wide, 1 - (y + 0.5) / high) for x, y in found]


def marks(page: Page, title: str, variable: str) -> list[tuple[float, float]]:
    """Return the middles of the filled marks, by x: groups of pixels with the colour around them, as no line has."""
    wide, high, found = page.run(PIXELS, title, variable)
    coloured = {(x, y) for x, y in found}
    around = ((3, 0), (-3, 0), (0, 3), (0, -3))
    filled = [(x, y) for x, y in coloured if all((x + a, y + b) in coloured for a, b in around)]
    groups: list[list[tuple[int, int]]] = []
    for x, y in sorted(filled):
        near = next((group for group in groups if math.dist(group[0], (x, y)) < 10), None)
        if near:
            near.append((x, y))
        else:
            groups.append([(x, y)])
    middles = [tuple(sum(axis) / len(group) + 0.5 for axis in zip(*group, strict=True)) for group in groups]
    return [(x / wide, 1 - y / high) for x, y in middles]


def middle(found: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the middle of a ring."""
    xs, ys = [x for x, _ in found], [y for _, y in found]
    return (min(xs) + max(xs)) / 2, (min(ys) + max(ys)) / 2


def between(value: float, least: float, most: float) -> float:
    """Return the place of a value on a logarithmic axis, which begins and ends at a factor of 1.7 from its values."""
    return math.log(value * 1.7 / least) / math.log(most / least * 1.7**2)


def test_times_are_where_a_logarithmic_plot_has_them(driver: webdriver.Chrome, tmp_path: Path) -> None:
    page = shown_with(driver, tmp_path, timed.document())
    assert page.texts("#bench figcaption b") == ["Time against size", "Ratio by dtype"]
    found = marks(page, "Time", "--dtype-float32")  # the torch library: a circle, filled
    other = marks(page, "Time", "--dtype-float16")  # the ORT library, four times as slow
    assert len(found) == len(other) == 3
    for (x, y), size in zip(found, timed.SIZES, strict=True):
        assert x == pytest.approx(between(size, 1e3, 1e6), abs=0.01)
        assert y == pytest.approx(between(size * 1e-9, 5e-7, 3e-2), abs=0.01), "from torch to the decomposed lowering"
    up = found[-1][1] - found[0][1]  # a factor of 1,000
    assert up > 0.3
    for (x, y), (x_other, y_other) in zip(found, other, strict=True):
        assert x_other == pytest.approx(x, abs=0.005)
        assert y_other - y == pytest.approx(up * math.log(4) / math.log(1000), abs=0.01)


def test_ratios_are_beside_their_line(driver: webdriver.Chrome, tmp_path: Path) -> None:
    """torch is twice as fast as the operator, and the decomposed lowering takes 8 times as long."""
    page = shown_with(driver, tmp_path, timed.document())
    box = page.all("#bench .plot")[1]
    box.send_keys(Keys.HOME)
    assert page.texts("#bench output")[1] == "n1000_float32, torch library / torch: 2 (1.8 to 2.4)"
    above = middle(pixels(page, "Ratio", "--ink"))
    box.send_keys(Keys.ARROW_DOWN)
    assert page.texts("#bench output")[1] == "n1000_float32, ORT library / decomposed: 0.125 (0.113 to 0.15)"
    below = middle(pixels(page, "Ratio", "--ink"))
    _, line = middle(pixels(page, "Ratio", "--wrong"))
    assert (above[1] - line) / (line - below[1]) == pytest.approx(math.log(2) / math.log(8), abs=0.03)
    bar = [y for x, y in pixels(page, "Ratio", "--dtype-bfloat16") if abs(x - below[0]) < 0.01]
    up = (line - below[1]) / math.log(8)
    assert (max(bar) - below[1]) / up == pytest.approx(math.log(1.2), abs=0.06), "the limit of the interval"
    box.send_keys(Keys.END)
    assert page.texts("#bench output")[1] == "n100000_float64, ORT library / decomposed: 0.125 (0.113 to 0.15)"
    assert middle(pixels(page, "Ratio", "--ink"))[0] > 0.5 > below[0], "float64 is right of float32"
    box.send_keys(Keys.ESCAPE)
    assert page.texts("#bench output")[1] == "Point at a mark, or use the arrow keys."


def test_the_pointer_reads_a_point_and_the_choices_change_the_plots(driver: webdriver.Chrome, tmp_path: Path) -> None:
    page = shown_with(driver, tmp_path, timed.document())
    x, y = marks(page, "Time", "--dtype-float32")[0]
    inner = page.one("#bench figure .u-over")
    page.run("arguments[0].scrollIntoView({ block: 'center' })", inner)
    place = round((x - 0.5) * inner.size["width"]), round((0.5 - y) * inner.size["height"])
    ActionChains(driver).move_to_element_with_offset(inner, *place).perform()
    shows(page, "n1000_float32, torch library: 1 µs (900 ns to 1.2 µs), 1 kB, 1 GB/s, 8 GFLOP/s")
    Select(page.one('#bench select[aria-label="threads of the times"]')).select_by_visible_text("2")
    page.all("#bench .plot")[0].send_keys(Keys.ARROW_RIGHT)
    shows(page, "n1000_float32, torch library: 500 ns (450 ns to 600 ns)")
    page.all("#bench .plot")[0].send_keys(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    shows(page, "n100000_float32, ORT library: 200 µs")
    Select(page.one('#bench select[aria-label="dtype of the times"]')).select_by_visible_text("float64")
    WebDriverWait(driver, 300).until(lambda _: len(marks(page, "Time", "--dtype-float32")) == 1)


def test_the_table_has_every_value_and_every_reason(driver: webdriver.Chrome, tmp_path: Path) -> None:
    page = shown_with(driver, tmp_path, timed.document())
    assert page.one("#bench summary").text == "operator_00 ours / peer 0.125 to 2, 5 rows, 2026-11-24"
    assert "a processor; 2 processors; torch 2.13.0; onnxruntime 1.31.1" in page.one("#bench .conditions").text
    page.one("#bench .values summary").click()
    rows = [re.split(r"\t+", text) for text in page.texts("#bench .values tbody tr")]
    assert len(rows) == 8 * 4 + 2 + 1
    values = ["500 ns (450 ns to 600 ns)", "2 (1.8 to 2.4)", "2 GB/s", "16 GFLOP/s", "4.1 kB", "0.25"]
    assert rows[2] == ["n1000_float32", "float32", "1", "torch", *values]
    assert rows[4] == ["n1000_float32", "float32", "1", "torchvision", "skipped: torchvision is not installed"]
    assert rows[-1][:3] == ["huge", "float32", "1"] and rows[-1][-1] == "failed: it died of SIGKILL"


def test_times_that_are_out_of_date_are_a_line_with_the_command(driver: webdriver.Chrome, tmp_path: Path) -> None:
    second = timed.document("operator_01") | {"schema": 0}
    page = shown_with(driver, tmp_path, timed.document(), second)
    assert page.texts("#bench > .reason") == [
        "operator_01: the times are in another format: schema 0, this opmatrix reads 2. Run: doit bench operator_01"
    ]
    assert len(page.all("#bench > details")) == 1


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 400)])
def test_axe_finds_nothing_in_the_times(driver: webdriver.Chrome, tmp_path: Path, scheme: str, width: int) -> None:
    second = timed.document("operator_01", flops=None)
    with emulated(driver, width=width, scheme=scheme):
        page = shown_with(driver, tmp_path, timed.document(), second)
        page.run("document.querySelectorAll('#bench details').forEach((d) => { d.open = true; })")
        WebDriverWait(driver, 300).until(lambda _: len(page.all("#bench .plots canvas")) == 4)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert findings(driver) == []
