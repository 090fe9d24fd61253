"""What a torch cannot check, as `register` says it: the check, and since when torch has it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.project.paths import Paths
from opmatrix.verdict import Verdict
from opmatrix.version import numbers

_LEAD = "skipped: "


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Checks that one torch leaves out for one reason, and the operators that lack them."""

    torch: str
    reason: str
    checks: tuple[str, ...]
    ops: tuple[str, ...]

    def __str__(self) -> str:
        """Return ``gradient: needs torch 2.4 (add_and_round, group_norm)``."""
        return f"{', '.join(self.checks)}: {self.reason} ({', '.join(self.ops)})"

    def as_json(self) -> dict[str, Any]:
        return {"torch": self.torch, "reason": self.reason, "checks": list(self.checks), "ops": list(self.ops)}


def read(layout: Paths, verdicts: Iterable[Verdict]) -> tuple[Skipped, ...]:
    """Return what was left out in the torches of `verdicts`, oldest first. A manifest that is missing or damaged tells
    nothing: the step that writes it has failed, which doit says."""
    places = sorted({(v.cell.torch, v.op) for v in verdicts if v.cell.torch}, key=lambda p: (numbers(p[0]), p[1]))
    lacking: dict[tuple[str, str, str], list[str]] = {}  # by torch, reason and check
    for torch, op in places:
        for check, reason in _of(layout.register_manifest(op, "*", torch=torch)):
            lacking.setdefault((torch, reason, check), []).append(op)
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for (torch, reason, check), ops in lacking.items():
        alike.setdefault((torch, reason, tuple(dict.fromkeys(ops))), []).append(check)
    return tuple(
        Skipped(torch=torch, reason=reason, checks=tuple(checks), ops=ops)
        for (torch, reason, ops), checks in alike.items()
    )


def by_torch(found: Sequence[Skipped]) -> dict[str, list[Skipped]]:
    """Return them by torch."""
    grouped: dict[str, list[Skipped]] = {}
    for skipped in found:
        grouped.setdefault(skipped.torch, []).append(skipped)
    return grouped


def _of(manifests: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(manifests.parent.glob(manifests.name)):
        try:
            results = json.loads(path.read_text())["results"]
            yield from ((r["check"], r["skipped"].removeprefix(_LEAD)) for r in results if "skipped" in r)
        except (ValueError, KeyError, TypeError, OSError):
            continue
