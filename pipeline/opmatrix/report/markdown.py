"""The report as Markdown for a comment on a pull request: what changed, a table, and what is wrong. What changed
between two reports is which cells and checks are newly broken, fixed, changed, new or gone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from opmatrix.basics.errors import many, printable
from opmatrix.basics.terminal import for_shell
from opmatrix.project.cells import Cell
from opmatrix.records.step import CheckKey
from opmatrix.records.verdict import WRONG, CheckRecord, Found, Outcome, Verdict
from opmatrix.report.records import Skipped, totals, weak_checks
from opmatrix.report.report_json import Document, Environments
from opmatrix.report.terminal import MARKS, ROW_MARKS, WEAK, compat_reasons, faults, replay, unsupported_cases

Kind = Literal["broken", "fixed", "changed", "new", "gone"]
KINDS: tuple[Kind, ...] = get_args(Kind)


def compare(now: Document, before: Document) -> dict[str, Any]:
    """Return report.json's `changes`: the cells and checks of each kind, and the versions that differ, by environment.

    A broken one was right (verified or unsupported) and is wrong (mismatched or failed) now, a fixed one the other way
    round; a changed one has another outcome of the same kind. Only one report has a new or gone one.
    """
    outcomes, earlier = _outcomes(now), _outcomes(before)
    found: dict[str, Any] = {kind: [] for kind in KINDS}
    for name in outcomes | earlier:
        was, outcome = earlier.get(name), outcomes.get(name)
        if was != outcome:
            found[_kind(was, outcome)].append({"name": name, "before": was, "now": outcome})
    return found | {"versions": _versions(now["environments"], before["environments"])}


def kinds(changes: Mapping[str, Any] | None) -> dict[str, tuple[Kind, str | None]]:
    """Return the kind of change and the earlier outcome of each cell and check of the newer report, by its name."""
    if not changes:
        return {}
    return {entry["name"]: (kind, entry["before"]) for kind in KINDS if kind != "gone" for entry in changes[kind]}


def _kind(before: str | None, now: str | None) -> Kind:
    if before is None:
        return "new"
    if now is None:
        return "gone"
    if (before in WRONG) == (now in WRONG):
        return "changed"
    return "broken" if now in WRONG else "fixed"


def _outcomes(report: Document) -> dict[str, str]:
    """Return the outcomes by name: ``relu-custom@torch2.13-dynamo-opset18-ort1.31``, ``relu-kernel@torch2.13``."""
    fields = ("torch", "exporter", "opset", "ort")
    cells = {f"{c['op']}-{c['lowering']}@{Cell(**{f: c[f] for f in fields})}": c["outcome"] for c in report["cells"]}
    checks = report.get("checks", ())
    return cells | {str(CheckKey(c["op"] or "", c["check"], c["lowering"], c["torch"])): c["outcome"] for c in checks}


def _versions(now: Environments, before: Environments) -> dict[str, dict[str, list[str | None]]]:
    """Return each version that differs, as [before, now], in the environments that both reports have."""
    changed: dict[str, dict[str, list[str | None]]] = {}
    for environment in (name for name in now if name in before):
        new, old = now[environment], before[environment]
        for package in {**new, **old}:
            if new.get(package) != old.get(package):
                changed.setdefault(environment, {})[package] = [old.get(package), new.get(package)]
    return changed


# GitHub rejects a comment of more than 65,536 characters; these bounds keep a summary of any matrix below that.
_ROWS = 100  # of the table; a longer one omits rows without a fault
_FAULTS = 10
_LINES = 8  # of a detail
_WIDTH = 400  # of a line of it
_LENGTH = 1200  # of all of it
_NAMES = 10  # of cells in one list

_HEADINGS = {"broken": "Newly broken", "fixed": "Newly fixed", "changed": "Changed otherwise", "gone": "Gone"}


def render(
    report: Document,
    verdicts: Sequence[Verdict],
    skipped: Sequence[Skipped] = (),
    checks: Sequence[CheckRecord] = (),
    *,
    root: Path = Path(),
) -> str:
    """Return the summary. `root` is the project's, in which commands run."""
    part = f", shard {shard['number']} of {shard['of']}" if (shard := report.get("shard")) else ""
    parts = [f"## opmatrix{part}: {totals(verdicts, checks)}", *_changes(report["changes"])]
    if verdicts:
        parts.append("\n".join(_table(verdicts)))
    if checks:
        parts.append("\n".join(_check_table(checks)))
    parts += _faults(verdicts, checks, root)
    if weak := weak_checks(checks):
        lines = _list(f"{WEAK[0]} {_code(str(found))}: {_plain(_cut(why))}" for found in weak for why in found.weak)
        parts.append("### Weak, and the remedy\n\n" + "\n".join(lines))
    if found := report.get("compat"):
        parts.append("\n".join(_compat(found)))
    if scores := report.get("mutation"):
        parts.append("\n".join(_scores(scores)))
    for one in report.get("shared", []):
        signed = f", signed by {_code(one['signer'])}" if one["signer"] else ""
        parts.append(f"{many(len(one['steps']), 'result')} from the shared cache {_code(one['from'])}{signed}.")
    if skipped:
        lines = _list(f"torch {s.torch}: {_plain(str(s))}" for s in skipped)
        parts.append("### Not checked, and why\n\n" + "\n".join(lines))
    versions = "<br>\n".join(
        _plain(f"{name}: {', '.join(f'{package} {version}' for package, version in versions.items())}")
        for name, versions in report["environments"].items()
    )
    return "\n\n".join([*parts, f"<sub>{versions}</sub>"]) + "\n"


def _changes(changes: Mapping[str, Any] | None) -> Iterator[str]:
    if changes is None:
        yield "There is no previous run to compare this one with."
        return
    counts = [f"{len(changes[kind])} {kind}" for kind in KINDS if changes[kind]]
    yield f"Since the previous run: {', '.join(counts) or 'everything as before'}."
    for environment, differing in changes["versions"].items():
        updates = [f"{name} {was or 'none'} → {now or 'none'}" for name, (was, now) in differing.items()]
        yield f"Versions of {environment}: {_plain(', '.join(updates))}."
    for kind, heading in _HEADINGS.items():
        if changes[kind]:
            yield f"**{heading}**\n\n" + "\n".join(_list(map(_change, changes[kind])))
    if wrong := [entry for entry in changes["new"] if entry["now"] in WRONG]:
        yield "**New and wrong**\n\n" + "\n".join(_list(map(_change, wrong)))


def _change(entry: Mapping[str, Any]) -> str:
    return f"{_code(entry['name'])}: {' → '.join(filter(None, (entry['before'], entry['now'])))}"


def _list(items: Iterable[str]) -> Iterator[str]:
    lines = [f"- {item}" for item in items]
    yield from lines[:_NAMES]
    if len(lines) > _NAMES:
        yield f"- and {len(lines) - _NAMES} more"


def _table(verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield a row for each operator and torch, a column for each ONNX Runtime: the number of cells of each outcome."""
    runtimes = sorted({v.cell.ort for v in verdicts}, key=_version)
    rows: dict[tuple[str, str, str], dict[str, Counter[Outcome]]] = {}
    for v in verdicts:
        row = rows.setdefault((v.op, v.lowering, v.cell.torch or "without"), {})
        row.setdefault(v.cell.ort, Counter())[v.outcome] += 1
    shown = rows
    if len(rows) > _ROWS:
        shown = {key: row for key, row in rows.items() if any(count[o] for count in row.values() for o in WRONG)}
    ordered = sorted(shown.items(), key=lambda item: (*item[0][:2], _version(item[0][2])))
    lines = [
        (_plain(f"{op}-{lowering}"), torch, *(_field(row.get(ort)) for ort in runtimes))
        for (op, lowering, torch), row in ordered
    ]
    yield from _rows(("operator", "torch", *(f"ONNX Runtime {ort}" for ort in runtimes)), lines, of=len(rows))


def _compat(records: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = list(dict.fromkeys(row["name"] for one in records for row in one["rows"]))
    yield "### Beyond eager mode (`doit compat`)\n"
    lines = []
    for one in records:
        marks = {row["name"]: ROW_MARKS[row["outcome"]][0] for row in one["rows"]}
        lines.append((_plain(one["op"]), one["torch"], *(marks.get(name, "") for name in names)))
    yield from _rows(("operator", "torch", *names), lines)
    yield ""
    yield from _list(f"{ROW_MARKS[o][0]} {name}: {_plain(_cut(why))} ({', '.join(ops)})"
                     for (name, o, why), ops in compat_reasons(records).items())  # fmt: skip


def percent(score: float | None) -> str:
    """Return ``95.0%``, rounded down, so that 100.0% is all; ``-`` where no mutant counts."""
    return "-" if score is None else f"{int(score * 1000) / 10:.1f}%"


def _scores(scores: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "### Mutants killed (`doit mutate`)\n"
    lines = []
    for one in scores:
        date = _plain(one["date"]) + ("" if one["current"] else ", of an earlier version")
        lines.append((_plain(one["op"]), percent(one["score"]), str(one["killed"]), str(one["survived"]), date))
    yield from _rows(("operator", "score", "killed", "survived", "date"), lines)


def _check_table(checks: Sequence[CheckRecord]) -> Iterator[str]:
    """Yield a row for each operator, or only for those with a fault: the number of checks of each outcome."""
    rows: dict[str, Counter[Outcome]] = {}
    for check in checks:
        rows.setdefault(check.op or check.check, Counter())[check.outcome] += 1
    shown = rows if len(rows) <= _ROWS else {op: row for op, row in rows.items() if any(row[o] for o in WRONG)}
    yield from _rows(("operator", "checks"), [(_plain(op), _field(row)) for op, row in shown.items()], of=len(rows))


def _rows(titles: Sequence[str], rows: Sequence[Sequence[str]], *, of: int = 0) -> Iterator[str]:
    """Yield a table of the first rows, and how many there are in all, also those left out before (`of`)."""
    yield f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}"
    yield from (f"| {' | '.join(row)} |" for row in rows[:_ROWS])
    if (count := max(of, len(rows))) > _ROWS:
        yield f"\n{count} rows; those in which nothing is wrong are left out. index.html has all of them."


def _field(count: Counter[Outcome] | None) -> str:
    """Return ``✓ 11``, or ``✗ 1, ✓ 10``: what is wrong comes first."""
    order: Sequence[Outcome] = ("failed", "mismatched", "verified", "unsupported")
    return ", ".join(f"{MARKS[o][0]} {count[o]}" for o in order if count and count[o])


def _faults(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord], root: Path) -> Iterator[str]:
    """Yield what is wrong, then what is unsupported. Cells and checks with the same detail are listed together."""
    found = faults(verdicts, checks)
    wrong = [(key, alike) for key, alike in found.items() if key[0] in WRONG]
    if wrong:
        yield "### What is wrong"
    for (outcome, detail), alike in wrong[:_FAULTS]:
        yield _fault(outcome, detail, alike, root)
    if len(wrong) > _FAULTS:
        yield f"{len(wrong) - _FAULTS} more faults are in index.html."
    reasons = [
        f"{_code(name)} in {many(len(details), 'cell')}: {_plain(_first(details[0]))}"
        for name, details in unsupported_cases(verdicts).items()
    ]
    reasons += [
        f"{many(len(alike), 'cell')}, such as {_code(str(alike[0]))}: {_plain(_first(detail))}"
        for (outcome, detail), alike in found.items()
        if outcome not in WRONG
    ]
    if reasons:
        yield "### Unsupported, and why\n\n" + "\n".join(_list(reasons))


def _fault(outcome: Outcome, detail: str, alike: Sequence[Found], root: Path) -> str:
    cells = "\n".join(_list(_code(str(found)) for found in alike))
    lines = [_cut(line) for line in detail[:_LENGTH].splitlines()[:_LINES]]
    if more := len(detail.splitlines()) - len(lines):
        lines.append(f"({more} more lines in report.json)")
    command = for_shell(replay(alike[0]), root)
    again = f"\n\n{_block([command])}" if command else ""
    return f"{MARKS[outcome][0]} **{outcome}**\n\n{cells}\n\n{_block(lines)}{again}"


def _block(lines: Sequence[str]) -> str:
    """Return a code block, fenced by more backticks than its lines contain."""
    text = "\n".join(lines)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _code(text: str) -> str:
    return f"`{printable(text.replace('`', ''))}`"


def _first(detail: str) -> str:
    return _cut(detail.partition("\n")[0])


def _cut(line: str) -> str:
    line = printable(line)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _plain(text: str) -> str:
    """Return Markdown that shows a string as it is, without markup, HTML, @mentions and table separators."""
    escaped = re.sub(r"([\\`*_\[\]<>&|~#])", r"\\\1", printable(text.replace("\n", " ")))
    return escaped.replace("@", "@\N{ZERO WIDTH SPACE}")


def _version(text: str) -> tuple[int, ...]:
    """Return a key that sorts 1.9 before 1.16, and what is no version last."""
    return tuple(int(part) for part in re.findall(r"\d+", text)) or (10**6,)
