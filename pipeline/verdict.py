"""Verdicts: what is known about one operator, lowering and cell. Written by verify, read by report."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pipeline.files import write_text

Outcome = Literal["verified", "mismatched", "failed", "unsupported"]
WRONG: tuple[Outcome, ...] = ("mismatched", "failed")


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of a verdict. `error` is the largest absolute error over all runs, `ulp` the largest one in units
    in the last place of the expected value; `limit` is the largest share of the tolerance that was used up
    (1.0 is just allowed). None is no number: the case did not run, or, where it is mismatched, no number says by how
    much: any error where the tolerance is 0, a NaN or an infinity on one side, another dtype or shape."""

    case: str
    model: str
    outcome: Outcome
    error: float | None = None
    ulp: float | None = None
    limit: float | None = None
    detail: str = ""

    @property
    def used(self) -> float | None:
        """`limit`, inf where no number says it."""
        return math.inf if self.limit is None and self.outcome == "mismatched" else self.limit


def percent(share: float) -> str:
    """Return a share of a tolerance: ``12%``, and ``>999%`` from ten times on, or where no number says it."""
    return f"{share:.0%}" if share < 9.995 else ">999%"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one operator, lowering and cell, with its cases inside."""

    op: str
    lowering: str
    cell: str
    outcome: Outcome
    detail: str = ""
    seconds: float = 0.0
    cases: tuple[CaseResult, ...] = ()

    def __str__(self) -> str:
        return f"{self.op}-{self.lowering}@{self.cell}"

    def case_name(self, case: str) -> str:
        return f"{self.op}-{self.lowering}-{case}@{self.cell}"

    def replay(self, case: str) -> str:
        """Return the command that runs one case again and tells how each run went."""
        return f"python -m pipeline verify {self.op} --lowering {self.lowering} --cell {self.cell} --case {case}"


def write(path: Path, verdict: Verdict) -> None:
    """Write `verdict` to `path`, whole or not at all. Its numbers are finite: JSON has no others."""
    write_text(path, json.dumps(asdict(verdict), indent=1, allow_nan=False) + "\n")


def read(path: Path) -> Verdict:
    """Read what `write` wrote. Raises FileNotFoundError, or ValueError for anything else than a verdict."""
    data = json.loads(path.read_text())
    try:
        return Verdict(**data | {"cases": tuple(CaseResult(**c) for c in data["cases"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: not a verdict: {error}") from error
