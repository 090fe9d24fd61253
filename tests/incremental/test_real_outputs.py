"""Every file that the default plan of a small project writes under build/ is listed by a step, or named here."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.project.cells import Choice
from tests.incremental.real import RealProject

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

# Files that no step lists, by pattern, each with the reason.
UNLISTED = {
    "state.db*": "the journal",
    "lock": "the lock",
    "plan*": "the kept plan, which is checked by its key",
    "log/*/*.log": "logs: what a step printed",
    "report/verdicts.txt": "an input of the report, written by the engine",
    "report/previous.json": "the last report with other results, which a person may put there",
    "report/cache.json": "what the last report read, which the report checks by time stamps, sizes and inodes",
    "report/history/*": "the last runs, which each report carries on, and the seconds of their steps, by the engine",
    "compile/*/headers.txt": "inputs that the compiler discovered: the engine checks what is in it",
    "compile/*/.ninja_*": "ninja's own",
    "compile/*/build.ninja": "ninja's own: the text is part of the step's configuration",
    "compile/*/places.ninja": "ninja's own, as above",
    "compile/*/*.txt": "ninja's own: what it built with, so that another compiler builds anew",
    "compile/*/*.json": "ninja's own, as above, and the commands for editors",
    "compile/*/*.o": "ninja's own: objects that no other step reads",
    "compile/*/stub/*.so": "ninja's own: a stub that the torch library is linked with",
    "compile_commands.json": "the commands of all operators for editors, which no step reads",
    "hypothesis/**/*": "hypothesis' database, which no step reads",
}


def test_every_file_of_the_default_plan_is_listed(real: RealProject, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(real.root / "build", ignore_errors=True)  # of other tests, with other cells, debug builds and wheels
    assert real.run().returncode == 0
    root = real.root.resolve()
    monkeypatch.chdir(root)
    planned = load_or_plan(real.paths, choice=Choice(), environ=os.environ)
    listed = {Path(path) for step in planned for path in (*step.writes, *step.links)}
    missing = [path for step in planned if step.group in ("export", "register", "verify")
               for path in map(Path, (*step.writes, *step.links)) if not path.exists()]  # fmt: skip
    assert missing == []
    build = root / "build"
    found = {path for path in build.rglob("*") if path.is_file() or path.is_symlink()} - listed
    excepted = {path for pattern in UNLISTED for path in build.glob(pattern)}
    assert sorted(str(path.relative_to(build)) for path in found - excepted) == []
    unneeded = {path for path in excepted & listed if path.suffix not in (".o", ".json")}
    assert not unneeded, "listed, and no exception"
