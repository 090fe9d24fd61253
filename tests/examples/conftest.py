"""What the tests of the examples share: an environment with opmatrix from its wheel."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.projects import ROOT
from tests.support.wheels import build_wheel
from tests.wheel.shipping import Environment


@pytest.fixture(scope="session")
def opmatrix(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with opmatrix from its wheel, and the packages of this environment, but not this checkout."""
    wheel = build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))
    made = Environment.make(tmp_path_factory.mktemp("opmatrix"), wheel, behind=Path(sys.executable))
    where = Path(made.check("-c", "import opmatrix; print(opmatrix.__file__)").strip())
    assert not where.is_relative_to(ROOT)
    return made
