"""Fixtures of the wheel's tests: one project, built once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.projects import Project
from tests.wheel.shipping import Environment, build, project


@pytest.fixture(scope="package")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose wheel is built."""
    made = project(tmp_path_factory.mktemp("shipped"))
    build(made)
    return made


@pytest.fixture(scope="package")
def wheel(shipped: Project) -> Path:
    (found,) = shipped.paths.dist.iterdir()
    return found


@pytest.fixture(scope="package")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the wheel that also finds the packages of the current one."""
    return Environment.make(tmp_path_factory.mktemp("fresh"), wheel, behind=Path(sys.executable))


@pytest.fixture(scope="package")
def exported(fresh: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the models that were exported with the wheel."""
    from tests.wheel.shipping import MODEL

    folder = tmp_path_factory.mktemp("exported")
    fresh.check(MODEL, "export", folder)
    return folder
