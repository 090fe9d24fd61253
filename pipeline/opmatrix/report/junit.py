"""The report as JUnit XML: a test suite per cell with a test case per case, and a test suite per check.

It has no times, so that equal results are equal bytes; the attribute is optional.
Format: the schema that Jenkins and GitLab read, https://github.com/testmoapp/junitxml.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from opmatrix.report.records import weak_checks
from opmatrix.verdict import CheckRecord, Outcome, Verdict

_TAGS: Mapping[Outcome, str] = {"mismatched": "failure", "failed": "error", "unsupported": "skipped"}
_COUNTS: Mapping[Outcome, str] = {"mismatched": "failures", "failed": "errors", "unsupported": "skipped"}


class _TestCase(NamedTuple):
    name: str
    classname: str
    outcome: Outcome
    detail: str
    output: str = ""


def render(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> bytes:
    """Return the XML document. Written as text: xml.etree takes three times as long, with its import."""
    suites = [(str(v), [*_of_cell(v)]) for v in verdicts] + [(str(c), [_of_check(c)]) for c in checks]
    lines = ["<?xml version='1.0' encoding='utf-8'?>"]
    lines.append(f"<testsuites{_head('opmatrix', [case for _, cases in suites for case in cases])}>")
    for name, cases in suites:
        lines.append(f"  <testsuite{_head(name, cases)}>")
        lines += map(_test_case, cases)
        lines.append("  </testsuite>")
    lines.append("</testsuites>\n")
    return "\n".join(lines).encode()


def _of_cell(verdict: Verdict) -> Iterator[_TestCase]:
    for case in verdict.cases:
        classname = ".".join(filter(None, [verdict.op, verdict.lowering, case.model]))
        yield _TestCase(verdict.case_name(case.case), classname, case.outcome, case.detail)
    if verdict.outcome not in {"verified", *(c.outcome for c in verdict.cases)}:
        # What concerns the whole cell, such as a library that cannot be loaded, is in no case.
        classname = f"{verdict.op}.{verdict.lowering}"
        yield _TestCase(verdict.case_name("cell"), classname, verdict.outcome, verdict.detail)


def _of_check(check: CheckRecord) -> _TestCase:
    classname = ".".join(filter(None, [check.op, check.lowering, check.check]))
    # A weak check is no failure: CI servers show the output of a test that passed.
    output = "\n".join(f"weak: {why}" for why in check.weak) if weak_checks([check]) else ""
    return _TestCase(str(check), classname, check.outcome, check.detail, output)


def _head(name: str, cases: Sequence[_TestCase]) -> str:
    """Return the attributes of a suite."""
    found = Counter(case.outcome for case in cases)
    counts = "".join(f' {count}="{found[outcome]}"' for outcome, count in _COUNTS.items())
    return f' name={_quoted(name)} tests="{len(cases)}"{counts}'


def _test_case(case: _TestCase) -> str:
    start, content = f"    <testcase name={_quoted(case.name)} classname={_quoted(case.classname)}", ""
    if tag := _TAGS.get(case.outcome):
        detail = _xml(case.detail)
        message = _quoted(detail.partition("\n")[0])
        content += f"\n      <{tag} message={message}>{_escaped(detail)}</{tag}>"
    if case.output:
        content += f"\n      <system-out>{_escaped(_xml(case.output))}</system-out>"
    return f"{start}>{content}\n    </testcase>" if content else f"{start} />"


def _quoted(text: str) -> str:
    return '"' + _escaped(text).replace('"', "&quot;") + '"'


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _xml(text: str) -> str:
    """Replace the characters that XML does not have: a crash may leave them in a log."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\N{REPLACEMENT CHARACTER}", text)
