"""Servers whose steps are the function `entry` of a test's own file, and calls that go on in the background."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar

import pytest

from opmatrix.engine.server_pool import Pool
from opmatrix.project.paths import Paths

P = ParamSpec("P")
T = TypeVar("T")


def begin(function: Callable[P, T], *arguments: P.args, **fields: P.kwargs) -> Future[T]:
    """Call a function in a thread of its own, which does not keep this process alive."""
    future = Future[T]()

    def call() -> None:
        try:
            future.set_result(function(*arguments, **fields))
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=call, daemon=True).start()
    return future


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def entry(folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Go to the folder and let servers find the test's file; return the name of its function."""
    path = [str(Path(__file__).parent), *sys.path]
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.setattr(sys, "path", path)
    return f"{request.path.stem}:entry"


@pytest.fixture
def pool(folder: Path, entry: str) -> Iterator[Pool]:
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    made = Pool(Paths(folder), entry=entry, lock=lock)
    made.prepare()
    yield made
    made.close()
    os.close(lock)
