"""The report's page as a user sees it, and the records that most tests show."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from opmatrix.judge import mismatch
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import Verdict
from opmatrix.report import page
from opmatrix.report.markdown import compare
from opmatrix.report.page import Background
from opmatrix.report.report_json import document
from opmatrix.spec import Tolerance
from tests.report.many import BACKGROUND, ENVIRONMENTS, GRAPH, checks, records, verdict

FOUND = records(4)


def write(path: Path, found: list[Verdict], behind: Background = BACKGROUND, compat: Sequence[Any] = ()) -> str:
    """Write the page of records, compared with a run in which all but the last were verified; return its address."""
    report = document(found, ENVIRONMENTS, checks=checks()) | {"compat": compat}
    before = [verdict(r.op, r.cell) for r in found[:-1]]
    gone = [verdict("removed", found[0].cell)]
    report["changes"] = compare(report, document([*before, *gone], ENVIRONMENTS))
    path.write_text(page.render(report, found, [behind] * len(found), checks()))
    return path.as_uri()


class Page:
    """The page as a user sees it."""

    def __init__(self, driver: webdriver.Chrome, address: str) -> None:
        self.driver, self.address = driver, address

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector
        )
        return found

    def press(self, *keys: str) -> None:
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def chip(self, facet: str, value: str) -> None:
        self.one(f'.chip[data-facet="{facet}"][data-value="{value}"]').click()

    def shown(self) -> int:
        """Return the number of cells in the matrix."""
        return len(self.all("td[data-i]"))

    @property
    def focused(self) -> str:
        """Return the text that a screen reader speaks for the focused element."""
        return str(self.run("return document.activeElement.getAttribute('aria-label') ?? ''"))

    def opened(self) -> str:
        return str(
            self.run("const d = document.getElementById('detail'); return d.hidden ? '' : d.getAttribute('aria-label')")
        )


def requests(driver: webdriver.Chrome) -> list[str]:
    """Return the address of every request since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def count(condition: Callable[[Verdict], bool]) -> int:
    return sum(condition(r) for r in FOUND)


def failing_page(path: Path, *, case: str = "case_1") -> tuple[str, dict[str, Any]]:
    """Write a page with the errors of a case: each seventh element along the last axis is wrong, one is NaN. In the
    verdicts, case_1 is wrong."""
    expected = np.random.default_rng(0).standard_normal((2, 6, 5, 7)).astype(np.float32)
    actual = expected.copy()
    actual[..., 6] *= np.float32(1.001)
    actual[1, 5, 4, 6] = np.nan
    record: dict[str, Any] = {
        "case": case, "model": "static", "attributes": {"eps": "1e-05"}, "output": "y",
        "inputs": [{"name": "x", "dtype": "float32", "shape": [2, 6, 5, 7]}],
        "actual_is": "ONNX Runtime, optimised", "expected_is": "reference in float64",
        **mismatch.measure(actual, expected, tolerance=Tolerance(rtol=1e-6, atol=1e-7)),
    }  # fmt: skip
    wrong = [r for r in FOUND if r.outcome == "mismatched" and r.op == "operator_00"][:4]
    found = [*wrong, *(r for r in FOUND if r.outcome == "verified" and r.cell.ort == "1.31")][:60]
    over = {"cases": [f"c{n}/static" for n in range(6)], "wrong": [0, 0, 0, 1, 1, 0],
            "sizes": {"N": [2, 2, 2, 3, 2, 3], "W": [1, 8, 16, 17, 33, 0]},
            "tolerance_used": [0.1, 0.2, 0.3, 60.0, None, 0.0],
            "in_common": "wrong from W = 17 on (2 of 2 cases; right up to W = 16 in 3)"}  # fmt: skip
    failing = {"records": [record | {"over": 0}], "shown": {str(r): {f"{case}/static": 0} for r in wrong},
               "failing": len(wrong), "over": [over]}  # fmt: skip
    links = page.links(Paths(path))
    behind = Background(log="line", pictures={"static": GRAPH, "dynamic": GRAPH})
    (path / "index.html").write_text(
        page.render(document(found, ENVIRONMENTS), found, [behind] * len(found), (), failing, links)
    )
    return (path / "index.html").as_uri(), record


# Return how many colours each plot has: an empty one has one.
COLOURS = """
return [...document.querySelectorAll(arguments[0])].map((canvas) => {
  const pixels = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  return new Set(pixels).size;
})"""


@contextmanager
def emulated(driver: webdriver.Chrome, *, width: int, scheme: str = "light") -> Iterator[None]:
    """Show pages in a window of this width, 800 high, with this colour scheme."""
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
