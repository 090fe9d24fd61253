"""The checks that `register` skipped because a torch does not have them, and the reasons."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.project.paths import Paths
from opmatrix.verdict import Verdict
from opmatrix.version import numbers


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Checks that are skipped in one torch for one reason, and the operators that they are skipped for."""

    torch: str
    reason: str
    checks: tuple[str, ...]
    ops: tuple[str, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.checks)}: {self.reason} ({', '.join(self.ops)})"

    def as_json(self) -> dict[str, Any]:
        return {"torch": self.torch, "reason": self.reason, "checks": list(self.checks), "ops": list(self.ops)}


def read(layout: Paths, verdicts: Iterable[Verdict]) -> tuple[Skipped, ...]:
    """Return the checks that were skipped in the torches of `verdicts`, oldest first. A missing or damaged manifest
    adds none: the step that writes it has failed, and doit reports that."""
    pairs = sorted({(v.cell.torch, v.op) for v in verdicts if v.cell.torch}, key=lambda p: (numbers(p[0]), p[1]))
    ops_of: dict[tuple[str, str, str], list[str]] = {}  # by torch, reason and check
    for torch, op in pairs:
        for check, reason in _of(layout.register_manifest(op, "*", torch=torch)):
            ops_of.setdefault((torch, reason, check), []).append(op)
    checks_of: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}  # by torch, reason and operators
    for (torch, reason, check), ops in ops_of.items():
        checks_of.setdefault((torch, reason, tuple(dict.fromkeys(ops))), []).append(check)
    return tuple(Skipped(torch=t, reason=r, checks=tuple(checks), ops=ops) for (t, r, ops), checks in checks_of.items())


def _of(manifests: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(manifests.parent.glob(manifests.name)):
        try:
            results = json.loads(path.read_text())["results"]
            yield from ((r["check"], r["skipped"].removeprefix("skipped: ")) for r in results if "skipped" in r)
        except (ValueError, KeyError, TypeError, OSError):
            continue
