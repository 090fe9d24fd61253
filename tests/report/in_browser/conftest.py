"""One chromium for all tests of the page, and the page in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.report.in_browser.page import FOUND, Page, requests, write
from tests.support.chromium import MISSING, start


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    started = start(
        "--disable-dev-shm-usage", "--window-size=1440,900", f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
        capabilities={"goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}},
    )  # fmt: skip
    if not started:
        pytest.skip(MISSING)
    started.set_script_timeout(3600)  # of the driver, 30 s, which a busy machine exceeds
    started.set_page_load_timeout(3600)
    yield started
    started.quit()


@pytest.fixture(scope="package")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("page") / "index.html", FOUND)


@pytest.fixture
def shown(driver: webdriver.Chrome, address: str) -> Iterator[Page]:
    """Return the page, newly opened. In every test the console stays empty, and the page reads only its file."""
    driver.get("about:blank")
    for log in ("performance", "browser"):
        driver.get_log(log)  # clears the messages so far
    driver.get(address)
    yield Page(driver, address)
    assert driver.get_log("browser") == []
    assert {url.partition("#")[0] for url in requests(driver)} <= {address, "data:,"}
