"""Which tests run each night, in what order tests run, and where a run goes on. A test that imports torch has the
marker `torch`: tests/conftest.py fails it otherwise. The durations of a part are read from its JUnit file, as pytest
writes it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests import conftest
from tests.conftest import Groups, Resume, pytest_collection_modifyitems, pytest_runtest_call
from tests.nightly import KEPT, NIGHTLY, counterpart, is_nightly, matching
from tests.support import durations

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
def test_each_pattern_names_a_test_and_each_change_runs_one_of_each_kind(tests: list[str]) -> None:
    assert [pattern for pattern in (*NIGHTLY, *KEPT) if not matching([pattern], tests)] == []
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


def test_the_tests_of_a_file_run_in_one_process() -> None:
    groups = Groups.__new__(Groups)
    for name, scope in {
        "tests/a.py::test_x[op@torch2.13::y]": "tests/a.py",
        "tests/docs/test_pages.py::test_x[docs/a.md]": "tests/docs/test_pages.py::test_x[docs/a.md]",
        "tests/test_readme.py::test_x": "tests/operators/test_cells.py",
        "tests/operators/test_cells.py::test_x": "tests/operators/test_cells.py",
    }.items():
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


def run(monkeypatch: pytest.MonkeyPatch, marker: object) -> object:
    """Import a torch in a test with or without the marker; return the test's result."""
    item: Any = SimpleNamespace(get_closest_marker=lambda name: marker)
    with monkeypatch.context() as patch:  # removed before the real hook checks
        patch.delitem(sys.modules, "torch", raising=False)
        call = pytest_runtest_call(item)
        next(call)
        patch.setitem(sys.modules, "torch", ModuleType("torch"))
        with pytest.raises(StopIteration) as ended:
            call.send("result")
    return ended.value.value


def test_an_import_of_torch_needs_the_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, pytest.mark.torch) == "result"
    with pytest.raises(pytest.fail.Exception, match="imports torch; mark it"):
        run(monkeypatch, None)


SUITE = """<testsuites><testsuite name="pytest" tests="3" time="9.5">
<testcase classname="tests.ops.test_a" name="one" time="1.25"/>
<testcase classname="tests.ops.test_b" name="two" time="8.0"><failure message="wrong"/></testcase>
<testcase classname="tests.ops.test_a" name="three" time="0.5"/>
</testsuite></testsuites>
"""
# Takes a second of CPU time in a process of its own.
BUSY = f"""'{sys.executable}' -c 'import time
while time.process_time() < 1.5: pass' """


def test_the_slowest_files_of_each_part_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unit.xml").write_text(SUITE)
    durations.main(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "unit: 10 s, 3 tests, 10 s of their processes",
        "      8.0 s  ops.test_b",
        "      1.8 s  ops.test_a",
    ]


def test_what_pytest_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    made = tmp_path / "unit.xml"
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", tmp_path, "--junitxml", made, tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    seconds, tests, files = durations.read(made)
    assert tests == 1 and [*files] == ["test_one"] and seconds >= sum(files.values())


@pytest.mark.parametrize(("command", "code"), [(BUSY, 0), ("false", 1)], ids=["busy", "failing"])
def test_ci_prints_the_cpu_seconds_of_a_part(command: str, code: int, tmp_path: Path) -> None:
    """Also of the processes that a part starts, as its pytest does; a part that fails ends the run."""
    run = (ROOT / ".ci/run").read_text()
    part = run[run.index("part() {") : run.index("\n}\n", run.index("part() {"))]
    assert 'run tox run -e "$1" 2>&1' in part
    (tmp_path / "run").write_text(f"#!/bin/sh\necho output; {command}\n")
    (tmp_path / "run").chmod(0o755)
    script = f"set -euo pipefail; log=log took=took; {part}\n}}; part unit"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    found = re.search(r"^ci: unit took \d+ s, (\d+) CPU s$", done.stdout, re.MULTILINE)
    assert (done.returncode, bool(found)) == (code, code == 0), done.stdout + done.stderr
    assert found is None or int(found[1]) >= 1
    assert "output" in (tmp_path / "log").read_text()
