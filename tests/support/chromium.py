"""Debian's chromium without a window, driven by selenium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

MISSING = "chromium and chromedriver are not on PATH; Debian: apt install chromium chromium-driver"


def start(*arguments: str, capabilities: Mapping[str, object] | None = None) -> webdriver.Chrome | None:
    """Start it with further arguments and capabilities; None where it is not installed. The caller quits it."""
    browser, program = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and program):
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    unprotected = ["--no-sandbox"] if os.geteuid() == 0 else []  # root cannot use the sandbox
    for argument in ("--headless=new", "--disable-gpu", *unprotected, *arguments):
        options.add_argument(argument)
    for name, value in (capabilities or {}).items():
        options.set_capability(name, value)
    return webdriver.Chrome(options=options, service=Service(program))
