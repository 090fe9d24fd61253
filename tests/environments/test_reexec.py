"""A stage runs in the environment that has its version, or names the missing environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import opmatrix
from opmatrix.basics.errors import UsageError
from opmatrix.environments import reexec
from opmatrix.project.paths import Paths

ARGUMENTS = ["verify", "my_op", "--cell", "node-opset18-ort1.18"]
Started = list[tuple[str, list[str], dict[str, str]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The program that would replace this process; the test does not replace it."""
    calls: Started = []

    def execve(python: str, arguments: list[str], variables: dict[str, str]) -> None:
        calls.append((python, arguments, variables))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(__version__="1.31.1"))  # type: ignore[arg-type]
    return calls


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.python("ort1.18").parent.mkdir(parents=True)
    made.python("ort1.18").touch()
    return made


def test_it_stays_in_the_main_environment(paths: Paths, started: Started) -> None:
    reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.31")
    assert started == []


def test_it_starts_the_right_environment(paths: Paths, started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/more")
    reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.18")
    ((python, arguments, variables),) = started
    assert (python, arguments[1:]) == (str(paths.python("ort1.18")), ["-m", "opmatrix", *ARGUMENTS])
    folder, more = variables["PYTHONPATH"].split(os.pathsep)
    assert more == "/more" and [p.name for p in Path(folder).iterdir()] == ["opmatrix"]
    assert Path(folder, "opmatrix").resolve() == Path(str(opmatrix.__file__)).resolve().parent


def test_a_link_to_another_folder_is_corrected(paths: Paths) -> None:
    link = paths.package_link("ort1.18")
    link.parent.mkdir()
    link.symlink_to("/where/the/checkout/was")
    reexec.python_path(paths, "ort1.18")
    assert link.resolve() == Path(str(opmatrix.__file__)).resolve().parent


def test_a_missing_environment_is_an_error(paths: Paths, started: Started) -> None:
    with pytest.raises(UsageError) as info:
        reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.21")
    assert str(info.value).splitlines() == [
        "this environment has onnxruntime 1.31, not 1.21; environment ort1.21 has not been created yet. "
        "Run: python -m opmatrix environment ort1.21",
        "It takes the network, 0.2 GB of disk and some seconds. Then repeat this command.",
    ]
    assert started == []


def test_an_environment_with_another_version_than_its_name(
    paths: Paths, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not start itself endlessly."""
    monkeypatch.setattr(sys, "prefix", str(paths.environment("ort1.18")))
    with pytest.raises(UsageError, match=r"^environment ort1\.18 has onnxruntime 1\.31\. Remove "):
        reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.18")
    assert started == []
