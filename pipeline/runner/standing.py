"""Which verdicts of earlier runs still hold: those of cells that this run does not plan.

A report covers what was asked for, and beside it what stands. Whether a verdict stands is known without planning its
step: the journal has what it was made from, and what this run plans for the same operator tells how that must be now.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doit.task import Task

from pipeline.layout import Layout
from pipeline.matrix import Cell
from pipeline.runner.state import State
from pipeline.runner.tasks import StepTask

# What a step's config may hold and a sibling's need not: it tells cells apart, and nothing of what they were made from.
_OWN = "first"


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Paths of verdicts that hold, or that say that something failed; and the cells whose verdicts are out of date."""

    verdicts: tuple[Path, ...]
    stale: tuple[str, ...]


def standing(layout: Layout, tasks: Sequence[Task], state: State) -> Standing:
    """Look at every verdict of an operator that this run plans, in a cell that it does not plan."""
    steps = {task.name: task for task in tasks if isinstance(task, StepTask)}
    siblings = {_kind(name): task for name, task in reversed(steps.items()) if name.startswith(("verify:", "export:"))}
    journal = _Journal(state, steps, siblings)
    verdicts: list[Path] = []
    stale: list[str] = []
    for name in sorted(set(state.journal.steps) - set(steps)):
        if name.startswith("verify:") and _kind(name) in siblings:
            operator, _, lowering = _kind(name).partition(":")[2].partition("-")
            cell = name.partition("@")[2]
            path = layout.verdict(operator, lowering, Cell.parse(cell))
            if not path.is_file():
                continue
            if journal.holds(name) or _is_wrong(path):
                verdicts.append(path)
            else:
                stale.append(cell)
    return Standing(verdicts=tuple(verdicts), stale=tuple(dict.fromkeys(stale)))


def _is_wrong(path: Path) -> bool:
    """Return whether a verdict is one that nobody may forget: it stays until its step has run again."""
    from pipeline.verdict import WRONG  # here, because a run with nothing to do pays for every import

    try:
        return json.loads(path.read_text())["outcome"] in WRONG
    except (ValueError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class _Journal:
    state: State
    steps: Mapping[str, StepTask]
    siblings: Mapping[str, StepTask]

    def holds(self, name: str) -> bool:
        """Return whether a step that this run does not plan would have nothing to do."""
        known = self.state.journal.detail(name)
        if self.state.journal.key(name) is None or not known or "config" not in known:
            return False
        return (
            self._is_configured(name, json.loads(known["config"] or "{}"))
            and self.state.unchanged(known["inputs"])
            and self.state.unchanged(known["outputs"])
            and (name.startswith("export:") or self._is_exported(name))
        )

    def _is_configured(self, name: str, known: Mapping[str, Any]) -> bool:
        """Compare what both have: the versions of another environment are among the inputs."""
        now: Mapping[str, Any] = json.loads(self.siblings[_kind(name)].step.config or "{}")
        return all(known[part] == now[part] for part in known.keys() & now.keys() if part != _OWN)

    def _is_exported(self, name: str) -> bool:
        """Return whether the model is up to date; one that this run plans is by now."""
        export = f"export:{name.partition(':')[2].rpartition('-')[0]}"
        return export in self.steps or (_kind(export) in self.siblings and self.holds(export))


def _kind(name: str) -> str:
    """Return ``verify:group_norm-custom`` for any of its cells."""
    return name.partition("@")[0]
