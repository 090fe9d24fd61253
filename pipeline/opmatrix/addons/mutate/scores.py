"""The scores that `doit mutate` wrote, for the report: which share of an operator's mutants its gates find."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opmatrix.basics.files import sha256, write_text
from opmatrix.project.paths import Paths


@dataclass(frozen=True, kw_only=True)
class MutationScore:
    """The score of one operator. `mutants`: how many it has; `tried` of them, chosen with `seed`. Of these count the
    `killed` and the `survived` ones. The others: `equivalent` (equal object code), `invalid` (do not compile),
    `stopped` (over a limit of time or memory) and `marked` (a person's mark, with its reason). `files`: the digests of
    the changed files."""

    op: str
    date: str
    mutants: int
    tried: int
    seed: str
    killed: int
    survived: int
    equivalent: int
    invalid: int
    stopped: int
    marked: int
    gates: Mapping[str, int] = field(default_factory=dict)
    survivors: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def score(self) -> float | None:
        """The share of killed mutants among those that count; None where none counts."""
        counted = self.killed + self.survived
        return self.killed / counted if counted else None

    def as_json(self, root: Path) -> dict[str, Any]:
        """Return the score as a record of report.json, with whether the files are those whose mutants were tried."""
        current = all((root / path).is_file() and sha256(root / path) == digest for path, digest in self.files.items())
        left_out = ("files", "survivors")
        shown = {key: value for key, value in asdict(self).items() if key not in left_out}
        return shown | {"score": self.score, "current": current, "survivors": list(self.survivors)}


def read_all(paths: Paths, operators: Iterable[str]) -> list[MutationScore]:
    """Return the scores of operators; none of one whose file is missing or damaged."""
    scores = []
    for name in sorted(operators):
        with suppress(OSError, ValueError, TypeError, KeyError):
            data = json.loads(paths.mutation_score(name).read_text(encoding="utf-8"))
            scores.append(MutationScore(**data | {"survivors": tuple(data["survivors"])}))
    return scores


def as_section(paths: Paths, operators: Iterable[str]) -> list[dict[str, Any]]:
    """Return the records of the scores of operators, for report.json."""
    return [score.as_json(paths.root) for score in read_all(paths, operators)]


def write(paths: Paths, score: MutationScore) -> None:
    """Write a score."""
    write_text(paths.mutation_score(score.op), json.dumps(asdict(score), indent=1) + "\n")
