"""The page neither runs nor loads what is in the texts that it shows."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from selenium import webdriver

from opmatrix.report.page import Background
from tests.report.in_browser.page import FOUND, Page, write
from tests.report.many import GRAPH, verdict

pytestmark = pytest.mark.browser

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
