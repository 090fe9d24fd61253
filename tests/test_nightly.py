"""Which tests run each night, in what order tests run, and where a run goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests import conftest
from tests.conftest import Groups, Resume, pytest_collection_modifyitems
from tests.nightly import KEPT, NIGHTLY, counterpart, is_nightly, matching

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tests() -> list[str]:
    """Return the names of the tests in the files that the patterns name, but for deep ones."""
    patterns = {pattern.partition("::")[0] for pattern in (*NIGHTLY, *map(counterpart, NIGHTLY), *KEPT)}
    files = sorted({path for p in patterns for path in ROOT.glob(f"tests/{p}{'.py' * p.endswith('*')}")})
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not deep", "-p", "no:cacheprovider"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}  # -v prints a tree
    done = subprocess.run(
        [*collect, "-o", "addopts=--import-mode=importlib", *files],
        cwd=ROOT, env=environ, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("tests/") for line in done.stdout.splitlines() if "::" in line]


@pytest.mark.torch  # which some files import
def test_each_pattern_names_a_test(tests: list[str]) -> None:
    assert [pattern for pattern in (*NIGHTLY, *KEPT) if not matching([pattern], tests)] == []


@pytest.mark.torch  # which some files import
def test_each_change_runs_a_test_of_each_kind(tests: list[str]) -> None:
    each_change = [test for test in tests if not is_nightly(test)]
    assert [kept for kept in map(counterpart, NIGHTLY) if not matching([kept], each_change)] == []
    assert [kept for kept in KEPT if not matching(NIGHTLY, matching([kept], tests))] == [], "no exception"


def test_kept_tests_are_exceptions() -> None:
    assert is_nightly("docs/test_pages.py::test_a_page_is_true[docs/ship.md]")
    assert not is_nightly("docs/test_pages.py::test_a_page_is_true[docs/quick-start.md]")
    assert not is_nightly("docs/test_pages.py::test_a_page_keeps_to_the_convention[docs/ship.md]")


class Item:
    """A test, as pytest collects it."""

    def __init__(self, nodeid: str, *markers: str) -> None:
        self.nodeid, self.markers = nodeid, {*markers}

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers

    def add_marker(self, marker: str) -> None:
        self.markers.add(marker)


def test_long_tests_come_first_and_those_of_the_night_are_marked() -> None:
    items: list[Any] = [
        Item("tests/a.py::test_one"),
        Item("tests/b.py::test_slow", "slow"),
        Item("tests/docs/test_pages.py::test_a_page_is_true[docs/ship.md]"),
        Item("tests/a.py::test_two"),
    ]
    pytest_collection_modifyitems(items)
    assert [item.nodeid[6] for item in items] == ["d", "b", "a", "a"]
    assert [item.markers for item in items] == [{"nightly"}, {"slow"}, set(), set()]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("tests/a.py::test_x[op@torch2.13::y]", "tests/a.py"),
        ("tests/docs/test_pages.py::test_x[docs/a.md]", "tests/docs/test_pages.py::test_x[docs/a.md]"),
        ("tests/test_readme.py::test_x", "tests/operators/test_cells.py"),
        ("tests/operators/test_cells.py::test_x", "tests/operators/test_cells.py"),
    ],
)
def test_the_tests_of_a_file_run_in_one_process(name: str, scope: str) -> None:
    groups = Groups.__new__(Groups)
    assert groups._split_scope(name) == scope


def test_the_processes_of_a_run(tmp_path: Path) -> None:
    """With xdist and pytest as they are installed: two files are divided, and no file is."""
    (tmp_path / "conftest.py").write_text((ROOT / "tests/conftest.py").read_text())
    test = "def test_{}(record_property):\n    import os; record_property('process', os.getpid())\n"
    for name in ("test_one.py", "test_two.py"):
        (tmp_path / name).write_text("".join(map(test.format, range(4))))
    options = ["-c", os.devnull, "--rootdir", tmp_path, "-n", "2", "--dist", "loadscope"]
    command = [sys.executable, "-m", "pytest", *options, "--junitxml", tmp_path / "found.xml", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = [*ElementTree.parse(tmp_path / "found.xml").iter("testcase")]
    used = {(case.get("classname"), found.get("value")) for case in cases for found in case.iter("property")}
    assert len(cases) == 8 and len(used) == 2


def passed(name: str, *, failed: bool = False) -> Any:
    return SimpleNamespace(nodeid=name, when="call", failed=failed, skipped=False)


def left(path: Path, names: list[str]) -> list[str]:
    items: list[Any] = [Item(name) for name in names]
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    Resume(path, controller=False).pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def ended(path: Path) -> int:
    """Return the exit code of a run without tests."""
    session: Any = SimpleNamespace(exitstatus=5)
    Resume(path, controller=False).pytest_sessionfinish(session, 5)
    return int(session.exitstatus)


def test_a_run_goes_on_at_the_same_commit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, commit = tmp_path / "nightly/tests", ["abc"]
    monkeypatch.setattr(conftest.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{commit[0]}\n"))
    first = Resume(path, controller=True)
    first.pytest_runtest_logreport(passed("a::x"))
    first.pytest_runtest_logreport(passed("a::y", failed=True))
    assert left(path, ["a::x", "a::y", "b::z"]) == ["a::y", "b::z"]
    Resume(path, controller=True).pytest_runtest_logreport(passed("a::y"))
    assert left(path, ["a::x", "a::y", "b::z"]) == ["b::z"]
    assert [ended(path), ended(tmp_path / "other")] == [0, 5], "nothing is left, and nothing was found"
    for other in ("abc-dirty", "def", "abc"):
        commit[0] = other
        Resume(path, controller=True)
        assert left(path, ["a::x"]) == ["a::x"], other
