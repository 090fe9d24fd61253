"""A test that imports torch has the marker `torch`: tests/conftest.py fails it otherwise."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.conftest import pytest_runtest_call


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
