"""Verdicts and check records, which the report reads: the outcome of one operator, lowering and cell, with its cases,
and the outcome of one check of an operator, such as a part of register."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeVar

from opmatrix.basics.files import write_text
from opmatrix.project import judging_code
from opmatrix.project.cells import Cell
from opmatrix.records.step import CheckKey
from opmatrix.spec import Lowering

CellKey = tuple[str, Lowering, Cell]
"""An operator, one of its lowerings and a cell."""

Outcome = Literal["verified", "mismatched", "failed", "unsupported"]
WRONG: tuple[Outcome, ...] = ("mismatched", "failed")
CaseKind = Literal["case", "function", "published", "forbidden", "inferred", "drawn", "gradient"]
"""What the case of a result or a record is: one of cases.py, one that ran through the function body, the model of a
published version, all forbidden calls, all shapes that ONNX Runtime infers, drawn inputs, or a sample of the gradient
check."""
_NAMES: Mapping[CaseKind, str] = {
    "case": "{}",
    "function": "{}_function",
    "published": "published_{}",
    "forbidden": "forbidden_inputs",
    "inferred": "inferred_shapes",
    "drawn": "drawn_inputs",
    "gradient": "gradient_{}",
}


def name_case(kind: CaseKind, of: object = "") -> str:
    """Return the name that is printed and that ``--case`` takes. `of`: the case of cases.py, or the version."""
    return _NAMES[kind].format(of)


_MEASURED = ("error", "tolerance_used")


@dataclass(frozen=True, kw_only=True)
class CaseResult:
    """One case of a verdict. `error` is the largest absolute error over all runs, `ulp` the largest one in units in the
    last place of the expected value, `tolerance_used` the largest part of a tolerance (1.0 is just allowed). All are
    None for a case that did not run. `error` and `tolerance_used` are inf for a mismatch that has none: an error where
    the tolerance is 0, a NaN or an infinity on one side, another dtype or shape. JSON has null for both. `judged_in` is
    the precision in which the reference was evaluated, with the reason where it is the declared dtype; "" for a case
    that did not run. `case` is `name_case` of its `kind`, or the name of one drawn input.
    """

    case: str
    model: str
    outcome: Outcome
    kind: CaseKind = "case"
    error: float | None = None
    ulp: float | None = None
    tolerance_used: float | None = None
    detail: str = ""
    judged_in: str = ""

    def __post_init__(self) -> None:
        if self.outcome == "mismatched":
            for name in _MEASURED:
                if getattr(self, name) is None:
                    object.__setattr__(self, name, math.inf)

    def as_json(self) -> dict[str, Any]:
        return vars(self) | {name: finite(getattr(self, name)) for name in _MEASURED}


def _largest(measure: str) -> cached_property[float | None]:
    """Return a property of cases: the largest value of a measure."""
    return cached_property(
        lambda cases: max((n for case in cases if (n := getattr(case, measure)) is not None), default=None)
    )


class Cases(tuple[CaseResult, ...]):
    """The cases of a verdict, with the largest value of each measure, maybe of different cases. Cells in which the same
    was measured may share one object, which sums them up once."""

    error = _largest("error")
    ulp = _largest("ulp")
    tolerance_used = _largest("tolerance_used")

    @cached_property
    def as_json(self) -> list[dict[str, Any]]:
        return [case.as_json() for case in self]

    @cached_property
    def outcomes(self) -> frozenset[Outcome]:
        return frozenset(c.outcome for c in self)

    def of(self, *outcomes: Outcome) -> tuple[CaseResult, ...]:
        """Return the cases with one of these outcomes."""
        return () if self.outcomes.isdisjoint(outcomes) else tuple(c for c in self if c.outcome in outcomes)

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def finite(number: float | None) -> float | None:
    """Return None instead of NaN and infinities, which JSON does not have."""
    return number if number is not None and math.isfinite(number) else None


def percent(tolerance_used: float) -> str:
    """Return ``12%``, and ``>999%`` from ten times the tolerance on and for inf."""
    return f"{tolerance_used:.0%}" if tolerance_used < 9.995 else ">999%"


@dataclass(frozen=True, kw_only=True)
class FailedStep:
    """The step whose failure prevented the verification of a cell, or a check. `missing`: it did not fail, but a run
    that computes nothing found no result of it."""

    group: str
    name: str
    missing: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The outcome of one operator, lowering and cell, with its cases. `library` is the SHA-256 of the custom-op library
    that ONNX Runtime loaded, if any, `exported` that of the manifest of the models, so that a report of other models is
    made again. `reference` is what computed the expected outputs: "numpy" or "torch 2.13.0"; "" where that is unknown.
    `cpu_levels`: the levels of the processor at which the kernel ran; none for a kernel that is compiled once.
    """

    op: str
    lowering: Lowering
    cell: Cell
    outcome: Outcome
    detail: str = ""
    blocked_by: FailedStep | None = None
    cases: Cases = field(default_factory=Cases)
    library: str = ""
    exported: str = ""
    reference: str = ""
    cpu_levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.cases, Cases):  # but another tuple of them
            object.__setattr__(self, "cases", Cases(self.cases))

    def __str__(self) -> str:
        return f"{self.op}-{self.lowering}@{self.cell}"

    @property
    def key(self) -> CellKey:
        return self.op, self.lowering, self.cell

    def case_name(self, case: str) -> str:
        return f"{self.op}-{self.lowering}-{case}@{self.cell}"

    def replay(self, case: str) -> str:
        """Return the command that runs one case again and prints its runs."""
        return f"python -m opmatrix verify {self.op} --lowering {self.lowering} --cell {self.cell} --case {case}"


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """The outcome of one check of an operator that is no cell. `results`: what was checked, as JSON objects; one with a
    reason as "skipped" could not be. `weak`: why a verified check proves little, each with the remedy. `torch` is
    "2.13", or "2.9+2.13" for what spans several; an empty `op` is none."""

    op: str
    check: str
    lowering: Lowering | None = None
    torch: str | None = None
    outcome: Outcome
    detail: str = ""
    blocked_by: FailedStep | None = None
    results: tuple[Mapping[str, Any], ...] = ()
    weak: tuple[str, ...] = ()

    def __str__(self) -> str:
        return str(self.key)

    @property
    def key(self) -> CheckKey:
        return CheckKey(self.op, self.check, self.lowering, self.torch)

    @property
    def replay(self) -> str:
        """The command that runs a check again; "" where `detail` has one, or names what failed before."""
        if self.check in ("cases", "draw-inputs") and not self.blocked_by:
            return f"python -m opmatrix {self.check} {self.op}"
        if self.check == "compat" and not self.blocked_by:
            return f"python -m opmatrix compat {self.op} --torch {self.torch}"
        if self.lowering or not self.torch or self.blocked_by or "Replay: " in self.detail:
            return ""
        return f"python -m opmatrix register {self.op} --part {self.check} --torch {self.torch}"


Found = Verdict | CheckRecord
AnyFound = TypeVar("AnyFound", bound=Found)


_CASES = '"cases": [\n'  # ends the first line of a verdict; a line for each case follows


def write(path: Path, record: Found) -> None:
    """Write `record` to `path`, whole or not at all. JSON has no NaN and no infinity. Raises SpecError in a process in
    which code of the project has changed what judges.

    The cases of a verdict are the last key, and begin a line: in most cells of an operator they are equal as text.
    """
    judging_code.require_unchanged()
    dumps = partial(json.dumps, allow_nan=False)
    if isinstance(record, CheckRecord):
        write_text(path, dumps(asdict(record)) + "\n")
        return
    head = vars(record) | {"cell": vars(record.cell), "blocked_by": record.blocked_by and vars(record.blocked_by)}
    del head["cases"]
    lines = ",\n".join(dumps(case) for case in record.cases.as_json)
    write_text(path, f"{dumps(head)[:-1]}, {_CASES}{lines}\n]}}\n")


def write_mismatches(
    path: Path, mismatches: Sequence[Mapping[str, Any]], over: Mapping[str, Any] | None = None
) -> None:
    """Write the records of `opmatrix.judge.mismatch` to a file, or remove those of an earlier run. `over`: what
    `opmatrix.judge.case_facts` has of all cases."""
    if mismatches:
        content = json.dumps({"mismatches": mismatches, "over": over}, separators=(",", ":"), allow_nan=False)
        write_text(path, content + "\n")
    else:
        path.unlink(missing_ok=True)


def read(path: Path) -> Verdict:
    """Read the verdict that `write` wrote. Raises FileNotFoundError, or ValueError for anything but a verdict."""
    return of_type(Verdict, read_any(path), path)


def read_check(path: Path) -> CheckRecord:
    """Read the record that `write` wrote. Raises FileNotFoundError, or ValueError for anything but a check record."""
    return of_type(CheckRecord, read_any(path), path)


def of_type(kind: type[AnyFound], record: Found, path: Path) -> AnyFound:
    """Return a record of this type. Raises ValueError for one of the other type."""
    if not isinstance(record, kind):
        names = {Verdict: "a verdict", CheckRecord: "the record of a check"}
        raise ValueError(f"{path}: not {names[kind]}, but {names[type(record)]}")
    return record


def read_any(path: Path) -> Found:
    """Read what `write` wrote. Raises FileNotFoundError, or ValueError for anything else."""
    head, cases = split(path.read_text(encoding="utf-8"))
    try:
        return made_of(json.loads(head), read_cases(cases))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def read_head(path: Path) -> Mapping[str, Any]:
    """Return the fields of a verdict or a check record but for its cases, unchecked; none if it cannot be read."""
    try:
        head = json.loads(split(path.read_text(encoding="utf-8"))[0])
    except (OSError, ValueError):
        return {}
    return head if isinstance(head, dict) else {}


def split(text: str) -> tuple[str, str]:
    """Return the JSON of all but the cases, and that of the cases, empty for a check record."""
    head, cases, lines = text.partition(_CASES)
    return (f"{head}{_CASES}]}}", f"[{lines.rstrip()[:-1]}") if cases else (text, "")


def read_cases(text: str) -> Cases:
    """Return the cases in JSON. Raises ValueError for anything else."""
    try:
        return Cases(CaseResult(**case) for case in json.loads(text or "[]"))
    except TypeError as error:
        raise ValueError(f"not a verdict: {error}") from error


def made_of(data: Any, cases: Cases) -> Found:
    """Return the verdict or the check record with these fields. Raises ValueError for anything else."""
    try:
        blocked = {"blocked_by": FailedStep(**data["blocked_by"]) if data["blocked_by"] else None}
        if "check" in data:
            lists = {"results": tuple(map(dict, data["results"])), "weak": tuple(map(str, data.get("weak", ())))}
            return CheckRecord(**data | blocked | lists)
        listed = cases or read_cases(json.dumps(data["cases"]))
        levels = {"cpu_levels": tuple(data.get("cpu_levels", ()))}
        return Verdict(**data | blocked | levels | {"cell": Cell(**data["cell"]), "cases": listed})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not a verdict: {error}") from error
