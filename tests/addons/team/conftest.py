"""A project with fake steps that workers can plan: its steps are in a file that travels with the sources."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.incremental.conftest import FAKE, Clone, wait_for
from tests.support.workers import Cluster

PLAN = """
import json, os
from opmatrix.shared_cache import client
from opmatrix.records.step import Step

client.PATIENCE = 500  # a busy machine makes any store slow

def plan(paths, *, choice, environ):
    steps = []
    for step in json.loads((paths.ops / "steps.json").read_text()):
        for field in ("reads", "writes", "declared"):
            step[field] = tuple(str(paths.root / p) for p in step.get(field, ()))
        for field in {"verdict", "discovered_inputs"} & step.keys():
            step[field] = str(paths.root / step[field])
        step["operator"] = step["name"].partition("@")[0].partition("-")[0]
        step["config"] = step.get("config", "").replace("COMPILER", environ.get("FAKE_COMPILER", "g++ 12"))
        steps.append(Step(**{"seconds": 3600} | step | {"command": tuple(step["command"])}))  # on a busy machine
    return steps
"""


class Shop(Clone):
    """A clone whose steps run on workers: a chain of three, and one that stays at home."""

    def __init__(self, root: Path, store: Path) -> None:
        super().__init__(root, store.as_uri())
        entry = 'entry = "fake:main"'
        self.write("fake.py", FAKE.replace(entry, f'{entry}\n    plan = "fake_plan:plan"'))
        self.write("fake_plan.py", PLAN)

    def on(self, address: str, *arguments: str, code: int = 0, **environment: str) -> str:
        """Run doit with ``--on`` and return what it prints."""
        done = self.doit("--on", address, *arguments, **self.caching() | environment)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def begun(self, found: Cluster, worker: str, target: str) -> subprocess.Popen[str]:
        """Start doit with ``--on``, and return when the worker has begun the step of a target."""
        process = self.popen("--on", found.address, **self.caching())
        wait_for(lambda: target in found.peek(worker))
        return process

    def caching(self) -> dict[str, str]:
        return {"OPMATRIX_CACHE": self.url, "OPMATRIX_CACHE_MODE": "write"}

    def _write_steps(self) -> None:
        super()._write_steps()
        self.write("ops/steps.json", json.dumps(self.steps))
