"""Of all tests: the checkout's root, which test may import torch, in what order they run, and where a run goes on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.nightly import is_nightly

# Markers in the order in which tests run; "" is any other test.
LONG_FIRST = ("independent", "slow", "")
ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--resume", metavar="FILE", help="leave out what passed at this commit, as FILE lists it")


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--resume"):
        config.pluginmanager.register(Resume(Path(path), controller=not hasattr(config, "workerinput")), "resume")


@pytest.hookimpl(tryfirst=True)  # before xdist appends the group to the name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give each test its process and its place: the tests of a file share what they make, so one process runs them,
    unless the file is `independent`. Long files come first, so that both processes are busy to the end."""
    for item in items:
        if is_nightly(item.nodeid.removeprefix("tests/")):
            item.add_marker("nightly")
        if not item.get_closest_marker("independent"):
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return next(n for n, name in enumerate(LONG_FIRST) if not name or item.get_closest_marker(name))


class Resume:
    """Keeps the names of the tests that passed at a commit, and leaves them out of the next run at that commit."""

    def __init__(self, path: Path, *, controller: bool) -> None:
        described = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
        self._commit = subprocess.run(described, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        self._path, self._controller = path, controller
        lines = path.read_text().splitlines() if path.exists() else []
        same = lines[:1] == [self._commit] and not self._commit.endswith("-dirty")
        self._passed = {*lines[1:]} if same else set()
        if controller and not same:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{self._commit}\n")

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left = [item for item in items if item.nodeid not in self._passed]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self._passed])
        items[:] = left

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ended = report.when == "call" or report.skipped
        if self._controller and ended and not report.failed:
            with self._path.open("a") as file:
                file.write(f"{without_group(report.nodeid)}\n")


def without_group(name: str) -> str:
    """Return the name of a test without the group that xdist appends: ``a.py::test`` for ``a.py::test@a.py``."""
    return name.rpartition("@")[0] if name.rfind("@") > name.rfind("]") else name


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
