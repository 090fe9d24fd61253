"""One chromium for all tests of the page, and the page in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.report.in_browser.page import FOUND, Page, requests, write


@pytest.fixture(scope="package")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    browser, program = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and program):
        pytest.skip("chromium and chromedriver are not on PATH; Debian: apt install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1440,900"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")  # which root cannot use
    for argument in (*arguments, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = webdriver.Chrome(options=options, service=Service(program))
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
