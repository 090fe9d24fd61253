"""The report as JUnit XML: a test suite per operator, with a test case per cell and per check.

It has no times, so that equal results are equal bytes; the attribute is optional.
Format: the schema that Jenkins and GitLab read, https://github.com/testmoapp/junitxml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from opmatrix.basics.terminal import for_shell
from opmatrix.records.verdict import WRONG, CheckRecord, Found, Outcome, Verdict
from opmatrix.report.records import weak_checks
from opmatrix.report.terminal import replay

_TAGS: Mapping[Outcome, str] = {"mismatched": "failure", "failed": "error", "unsupported": "skipped"}
_COUNTS: Mapping[Outcome, str] = {"mismatched": "failures", "failed": "errors", "unsupported": "skipped"}


def render(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord] = (), *, root: Path = Path()) -> bytes:
    """Return the XML document; `root` is the project's, in which commands run.

    Written as text: xml.etree takes three times as long, with its import."""
    records: list[Found] = sorted([*verdicts, *checks], key=_suite)  # which keeps the order within an operator
    lines = ["<?xml version='1.0' encoding='utf-8'?>", f"<testsuites{_head('opmatrix', records)}>"]
    for name, group in groupby(records, _suite):
        suite = [*group]
        lines.append(f"<testsuite{_head(name, suite)}>")
        lines += [_test_case(one, root) for one in suite]
        lines.append("</testsuite>")
    lines.append("</testsuites>\n")
    return "\n".join(lines).encode()


def _suite(record: Found) -> str:
    return record.op or str(record)  # of a failed step that has no operator, its group


def _head(name: str, records: Sequence[Found]) -> str:
    outcomes = Counter(one.outcome for one in records)
    counts = "".join(f' {count}="{outcomes[outcome]}"' for outcome, count in _COUNTS.items())
    return f' name={_quoted(name)} tests="{len(records)}"{counts}'


def _test_case(record: Found, root: Path) -> str:
    name = str(record.cell) if isinstance(record, Verdict) else record.check
    if isinstance(record, CheckRecord) and record.torch:
        name += f"@torch{record.torch}"
    start = (
        f"<testcase name={_quoted(name)} classname={_quoted('.'.join(filter(None, (_suite(record), record.lowering))))}"
    )
    if tag := _TAGS.get(record.outcome):
        detail = _xml("\n".join(_lines(record, root)))
        message = _quoted(detail.partition("\n")[0])
        return f"{start}><{tag} message={message}>{escape(detail, quote=False)}</{tag}></testcase>"
    if isinstance(record, CheckRecord) and weak_checks([record]):
        # A weak check is no failure: CI servers show the output of a test that passed.
        output = _xml("\n".join(f"weak: {why}" for why in record.weak))
        return f"{start}><system-out>{escape(output, quote=False)}</system-out></testcase>"
    return f"{start}/>"


def _lines(record: Found, root: Path) -> Iterator[str]:
    """Yield why a cell or a check is not verified: of a cell, also the messages of its other cases; and the command
    that repeats what is wrong, where the messages do not have it."""
    yield record.detail
    if isinstance(record, Verdict):
        for case in record.cases.of(*WRONG):
            if case.detail not in record.detail:
                yield f"{case.case}: {case.detail}"
    if record.outcome in WRONG and (command := replay(record)):
        yield f"Replay: {for_shell(command, root)}"


def _quoted(text: str) -> str:
    return '"' + escape(text, quote=False).replace('"', "&quot;") + '"'


def _xml(text: str) -> str:
    """Replace the characters that XML does not have: a crash may leave them in a log."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)
