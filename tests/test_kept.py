"""The servers that the tests keep from one run of doit to the next."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.kept import keeper
from tests.support.projects import Project

pytestmark = pytest.mark.incremental


def started(project: Project, **environment: str) -> set[str]:
    """Run a step that needs a server, and return the servers that the run started."""
    project.passes("-r", "jsonl", "-o", "events", "-a", "data:dual_residual", **environment)
    events = map(json.loads, (project.root / "events").read_text().splitlines())
    return {event["server"] for event in events if event["event"] == "server"}


def test_a_run_starts_servers_only_where_its_variables_differ(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=("dual_residual",))
    assert (started(project), started(project, NO_COLOR="1")) == (set(), {"onnx"})


def test_a_keeper_that_ends_fails_one_test(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=("dual_residual",))
    project.passes("data:dual_residual")
    keeper()._process.kill()
    keeper()._process.wait()
    with pytest.raises(RuntimeError, match="the process that keeps servers has ended"):
        project.doit("data:dual_residual")
    project.passes("data:dual_residual")
