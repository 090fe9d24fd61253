"""Real steps on workers: the same bytes as alone, and a worker with another compiler, which compiles nothing."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.incremental.real import RealProject
from tests.support.workers import cluster

pytestmark = [pytest.mark.incremental, pytest.mark.slow]
TASKS = ("compile:group_norm", "cases:group_norm", "export:group_norm*legacy*", "register:group_norm-kernel*")


def outputs(project: RealProject) -> Mapping[str, str]:
    """Return the digest of each output of the steps that travel."""
    with sqlite3.connect(project.root / "build/state.db") as state:
        details = dict(state.execute("select name, detail from step"))
    found = [json.loads(detail)["outputs"] for detail in details.values()]
    return {path: digest for written in found for path, digest in written.items()}


def other_compiler(folder: Path) -> Mapping[str, str]:
    """Return the environment of a machine with another compiler: the same g++, behind another program."""
    folder.mkdir()
    compiler = folder / "g++"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    compiler.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_the_same_bytes_as_alone_and_none_of_another_compiler(tmp_path: Path) -> None:
    alone, away = RealProject.make(tmp_path / "alone"), RealProject.make(tmp_path / "away")
    done = alone.run("-n", "2", *TASKS)
    assert done.returncode == 0, done.stdout + done.stderr
    caching = {"OPMATRIX_CACHE": (tmp_path / "store").as_uri(), "OPMATRIX_CACHE_MODE": "write"}
    with cluster(tmp_path / "dask") as found:
        found.start("other", environment=other_compiler(tmp_path / "bin"))
        done = away.run("--on", found.address, "compile:group_norm", **caching)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "1 step ran on 1 worker (other: 1)" in done.stdout  # codegen
        assert "the worker other refused 1 step: compile:group_norm: it would be made from something" in done.stdout
        assert "compiler g++ " in done.stdout
        found.kill("other")
        found.start("equal")
        shutil.rmtree(away.root / "build")
        shutil.rmtree(tmp_path / "store")
        done = away.run("--on", found.address, *TASKS, **caching)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "refused" not in done.stdout
    ours = outputs(away)
    assert len(ours) > 20
    assert ours == outputs(alone)
