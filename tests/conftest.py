"""Of all tests: the checkout's root, which test may import torch, in what order they run, and where a run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.nightly import is_nightly
from tests.support.kept import environ

# Files whose tests share nothing, so that several processes may run them.
INDEPENDENT = (
    "tests/benchmarks/test_benchmarks.py",
    "tests/benchmarks/test_mistakes.py",
    "tests/docs/test_pages.py",
    "tests/docs/test_site.py",
)
# Files whose tests build this checkout, one after the other.
OF_CHECKOUT = ("tests/operators/test_cells.py", "tests/ort_checks/test_backend_runner.py", "tests/test_readme.py")
ROOT = Path(__file__).resolve().parent.parent
VARIABLES = pytest.StashKey[Mapping[str, str]]()  # of the process, before its first test


def pytest_configure(config: pytest.Config) -> None:
    if path := os.environ.get("OPMATRIX_RESUME"):  # an option of a conftest.py is unknown to the processes of xdist
        config.pluginmanager.register(Resume(Path(path), controller=not hasattr(config, "workerinput")), "resume")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the night, and put those first that take long, so that both processes are busy to the end."""
    for item in items:
        if is_nightly(item.nodeid.removeprefix("tests/")):
            item.add_marker("nightly")
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    return 0 if item.nodeid.startswith(INDEPENDENT) else 1 if item.get_closest_marker("slow") else 2


def pytest_collection_finish(session: pytest.Session) -> None:
    session.stash[VARIABLES] = environ()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Undo what the tests of a file have changed in the variables of their process: stages and torch set some."""
    result = yield
    if nextitem and nextitem.path != item.path:
        before = item.session.stash[VARIABLES]
        for name in environ().keys() - before:
            del os.environ[name]
        os.environ.update(before)
    return result


class Groups(LoadScopeScheduling):
    """Gives the tests of a file to one process, since they share what they make, and those of some files one by one.

    As xdist 3.8's ``--dist loadgroup``, which pytest 9.2 breaks: it no longer takes names that a plugin changes.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(INDEPENDENT):
            return nodeid
        file = nodeid.partition("::")[0]
        return OF_CHECKOUT[0] if file in OF_CHECKOUT else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Groups:
    return Groups(config, log)


class Resume:
    """Keeps the names of the tests that passed at a commit in a file, and leaves them out of the next run there."""

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

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left = [item for item in items if item.nodeid not in self._passed]
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self._passed])
        items[:] = left

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self._passed:  # nothing is left
            session.exitstatus = pytest.ExitCode.OK

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        ended = report.when == "call" or report.skipped
        if self._controller and ended and not report.failed:
            with self._path.open("a") as file:
                file.write(f"{report.nodeid}\n")


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
