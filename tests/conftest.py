"""Fixtures of all tests: the checkout's root, and which test may import torch."""

from __future__ import annotations

import sys
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the root of this checkout."""
    return ROOT


@pytest.fixture(scope="session")
def torch() -> Any:
    """Return torch, so that modules do not import it when they are collected."""
    return import_module("torch")


@pytest.fixture(autouse=True)
def without_torch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide torch from a test of ONNX Runtime alone: if an earlier test has imported it, verify refuses to run."""
    if request.node.get_closest_marker("ort") and not request.node.get_closest_marker("torch"):
        monkeypatch.delitem(sys.modules, "torch", raising=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test without the marker `torch` that imports it: `-m "not torch"` needs no framework and takes seconds."""
    known = "torch" in sys.modules
    result = yield
    if not known and "torch" in sys.modules and not item.get_closest_marker("torch"):
        pytest.fail("this test imports torch; mark it: pytest.mark.torch", pytrace=False)
    return result
