"""Which tests run each night, in what order tests run, and where a run goes on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import conftest
from tests.conftest import Resume, pytest_collection_modifyitems, without_group
from tests.nightly import KEPT, NIGHTLY, is_nightly

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("pattern", [*NIGHTLY, *KEPT])
def test_each_pattern_names_a_test(pattern: str) -> None:
    path, _, name = pattern.partition("::")
    files = [*ROOT.glob(f"tests/{path}{'.py' * path.endswith('*')}")]
    assert files
    function = name.partition("[")[0].strip("*")
    assert any(f"def {function}" in file.read_text() for file in files) or not function


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

    def add_marker(self, marker: Any) -> None:
        self.markers.add(marker if isinstance(marker, str) else f"{marker.name}={marker.args[0]}")


def test_files_stay_together_and_long_ones_come_first() -> None:
    items: list[Any] = [
        Item("tests/a.py::test_one"),
        Item("tests/b.py::test_slow", "slow"),
        Item("tests/docs/test_pages.py::test_a_page_is_true[docs/ship.md]", "independent"),
        Item("tests/a.py::test_two"),
    ]
    pytest_collection_modifyitems(SimpleNamespace(), items)  # type: ignore[arg-type]  # it reads none of it
    assert [item.nodeid.partition("/")[2][0] for item in items] == ["d", "b", "a", "a"]
    assert items[0].markers == {"independent", "nightly"}
    assert items[1].markers == {"slow", "xdist_group=tests/b.py"}
    assert items[2].markers == items[3].markers == {"xdist_group=tests/a.py"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("tests/a.py::test_x@tests/a.py", "tests/a.py::test_x"),
        ("tests/a.py::test_x[op@torch2.13]@tests/a.py", "tests/a.py::test_x[op@torch2.13]"),
        ("tests/a.py::test_x[op@torch2.13]", "tests/a.py::test_x[op@torch2.13]"),
    ],
)
def test_the_group_of_a_test(name: str, expected: str) -> None:
    assert without_group(name) == expected


def passed(name: str, *, failed: bool = False) -> Any:
    return SimpleNamespace(nodeid=name, when="call", failed=failed, skipped=False)


def left(path: Path, names: list[str]) -> list[str]:
    items: list[Any] = [Item(name) for name in names]
    config: Any = SimpleNamespace(hook=SimpleNamespace(pytest_deselected=lambda items: None))
    Resume(path, controller=False).pytest_collection_modifyitems(config, items)
    return [item.nodeid for item in items]


def test_a_run_goes_on_at_the_same_commit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, commit = tmp_path / "nightly/tests", ["abc"]
    monkeypatch.setattr(conftest.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{commit[0]}\n"))
    first = Resume(path, controller=True)
    first.pytest_runtest_logreport(passed("a::x@a"))
    first.pytest_runtest_logreport(passed("a::y@a", failed=True))
    assert left(path, ["a::x", "a::y", "b::z"]) == ["a::y", "b::z"]
    Resume(path, controller=True).pytest_runtest_logreport(passed("a::y@a"))
    assert left(path, ["a::x", "a::y", "b::z"]) == ["b::z"]
    for other in ("abc-dirty", "def", "abc"):
        commit[0] = other
        Resume(path, controller=True)
        assert left(path, ["a::x"]) == ["a::x"], other
