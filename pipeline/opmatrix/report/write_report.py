"""Report the outcome of every cell and every check: in the terminal, as JSON, JUnit XML, Markdown and an HTML page."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from opmatrix.basics import features
from opmatrix.basics.errors import ReportError, UsageError, many
from opmatrix.basics.files import read_list, write_bytes, write_text
from opmatrix.basics.step_log import RAN
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records.step import CheckKey
from opmatrix.records.verdict import WRONG, CellKey, CheckRecord, Found, Verdict
from opmatrix.report import history, junit, markdown, records, terminal
from opmatrix.report import page as html_page
from opmatrix.report.markdown import compare
from opmatrix.report.read_cache import ReadCache
from opmatrix.report.records import ReportedPart
from opmatrix.report.report_json import Document, document, parse, same, text, used_environments

Exists = Callable[[str, str, Cell], bool]


def run(
    paths: Paths,
    expected: Sequence[CellKey],
    expected_checks: Sequence[CheckKey] = (),
    *,
    exists: Exists = lambda *_: True,
    part: ReportedPart | None = None,
) -> None:
    """Write every file of the report, and print the table of the `expected` cells and checks.

    The files also contain the valid verdicts of earlier runs in other cells, if `exists` returns True for them; they
    do not depend on which of these cells are expected. `part`: what `doit --shard` verifies, which is `expected`.
    Raises ReportError unless each expected cell and check is verified, or unsupported with a reason.
    """
    cache = ReadCache(paths)
    asked = [records.collect(cache, *key) for key in expected]
    expected_records = [records.collect_check(cache, key) for key in expected_checks]
    others = [*_others(cache)]
    earlier = [v for v in others if isinstance(v, Verdict) and exists(*v.key)]
    # The failure of a step that has no other record concerns every choice of cells, as a declaration does.
    elsewhere = part.elsewhere if part else frozenset()
    checks, earlier_checks = [*expected_records], list[CheckRecord]()
    for record in (c for c in others if isinstance(c, CheckRecord)):
        of_another = record.torch or (record.key in elsewhere and record.outcome not in WRONG)
        (earlier_checks if of_another else checks).append(record)
    # What is printed has commands as in verdicts: doit prints the log of this stage.
    verdicts = records.pasteable(records.in_order([*asked, *earlier]), paths.root)
    every_check = records.pasteable(records.checks_in_order([*checks, *earlier_checks]), paths.root)
    skipped = records.skipped_checks(every_check)
    main = {"python": platform.python_version(), **asdict(installed())}
    operators = {*(v.op for v in verdicts), *(c.op for c in every_check)}
    mutation = _section("mutation", paths, operators)
    shared = history.origins_as_json(history.read_origins(paths))
    report = document(verdicts, used_environments(paths, verdicts, main), skipped, every_check, mutation, part, shared)
    if before := _previous(paths, report):
        report["changes"] = compare(report, before)
    data, xml, summary, html = paths.report_files
    write_text(data, text(report))
    write_bytes(xml, junit.render(verdicts, every_check, root=paths.root))
    write_text(summary, markdown.render(report, verdicts, skipped, every_check, root=paths.root))
    backgrounds = [html_page.read_background(cache, v) for v in verdicts]
    cache.save()
    failing = html_page.read_mismatches(paths, verdicts, every_check)
    links = html_page.links(paths)
    runs, took = history.record(paths, verdicts, every_check), history.seconds(paths, operators)
    bench = _section("bench", paths, operators)
    content = (report, verdicts, backgrounds, every_check, failing, links, runs, took, bench)
    write_text(html, html_page.render(*content, root=paths.root))
    console = Console()
    checks = records.checks_in_order(checks)
    nothing = not part and not asked and not any(c.outcome in WRONG for c in checks)
    if nothing and not checks:
        raise _nothing_asked(paths)
    ran = os.environ[RAN].split(",") if RAN in os.environ else None
    terminal.show(asked, console, records.skipped_checks(checks), checks, ran=ran)
    if part:
        shown = f"{len(asked)} of {many(part.cells, 'cell')}, {len(checks)} of {many(part.checks, 'check')}"
        console.print(f"{part}: {shown}", highlight=False, soft_wrap=True)
    if earlier or earlier_checks:
        found = records.totals(earlier, earlier_checks)
        console.print(f"from earlier runs, not asked for in this one: {found}", highlight=False, soft_wrap=True)
    terminal.show_compat(every_check, console)
    console.print(str(html.relative_to(paths.root)), highlight=False, soft_wrap=True)
    if nothing:
        raise _nothing_asked(paths)
    if wrong := [*filter(None, (_wrong(asked, "cell"), _wrong(checks, "check")))]:
        path = data.relative_to(paths.root)
        verb = "is" if len(wrong) == 1 and wrong[0].startswith("1 ") else "are"
        raise ReportError(f"{' and '.join(wrong)} {verb} neither verified nor unsupported; all of it in {path}")


def _section(name: str, paths: Paths, operators: Collection[str]) -> list[dict[str, Any]]:
    """Return what features add to the report under a name; one that cannot be imported costs a line."""
    try:
        section = features.provided(name, optional=True)
    except UsageError as error:
        print(f"{name} is left out: {error}", file=sys.stderr)
        return []
    records: list[dict[str, Any]] = section(paths, operators) if section else []
    return records


def _nothing_asked(paths: Paths) -> ReportError:
    if any(paths.ops.glob("*/spec.py")):
        return ReportError(
            "no cell was asked for: no operator in ops/ can be used, or none has an opset from its min_opset on"
        )
    return ReportError("no operator in ops/ yet, so there is nothing to verify; `doit new` writes one")


def _wrong(asked: Sequence[Found], noun: str) -> str:
    """Return ``2 of 82 cells``, or nothing where all are right."""
    wrong = sum(record.outcome in WRONG for record in asked)
    return f"{wrong} of {many(len(asked), noun)}" if wrong else ""


def _others(cache: ReadCache) -> Iterator[Found]:
    """Yield the other records that the engine lists: valid ones of earlier runs, and failures of steps."""
    known = frozenset(cache.asked)
    with suppress(FileNotFoundError):
        for path in read_list(cache.paths.verdict_list, root=cache.paths.root):
            if path not in known:
                with suppress(FileNotFoundError, ValueError):  # removed or being written since the engine looked
                    record = cache.record(Path(path))
                    yield records.checked(record)


def _previous(paths: Paths, report: Document) -> Document | None:
    """Return the report to compare `report` with, the last one of another run, and store `report`."""
    last = _read(paths.report_data)
    if last is None or same(last, report):
        return _read(paths.previous_report)
    write_bytes(paths.previous_report, paths.report_data.read_bytes())
    return last


def _read(path: Path) -> Document | None:
    with suppress(FileNotFoundError, UnicodeDecodeError):
        return parse(path.read_text(encoding="utf-8"))
    return None
