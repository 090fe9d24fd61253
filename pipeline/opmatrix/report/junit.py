"""The report as JUnit XML: a test suite per cell with a test case per case, and a test suite per check.

It has no times, so that equal results are equal bytes; the attribute is optional.
Format: the schema that Jenkins and GitLab read, https://github.com/testmoapp/junitxml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from opmatrix.report.records import weak_checks
from opmatrix.verdict import CaseResult, CheckRecord, Outcome, Verdict

_TAGS: Mapping[Outcome, str] = {"mismatched": "failure", "failed": "error", "unsupported": "skipped"}
_COUNTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}
# A crash may leave characters in a log that XML does not have.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(verdicts: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> bytes:
    """Return the XML document."""
    root = Element("testsuites", name="opmatrix")
    root.extend(map(_suite, verdicts))
    root.extend(map(_check_suite, checks))
    _count(root)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(verdict: Verdict) -> Element:
    suite = Element("testsuite", name=str(verdict))
    for case in verdict.cases:
        _case(suite, verdict, case)
    if verdict.outcome not in {"verified", *(c.outcome for c in verdict.cases)}:
        # What concerns the whole cell, such as a library that cannot be loaded, is in no case.
        _case(suite, verdict, CaseResult(case="cell", model="", outcome=verdict.outcome, detail=verdict.detail))
    _count(suite)
    return suite


def _check_suite(check: CheckRecord) -> Element:
    suite = Element("testsuite", name=str(check))
    classname = ".".join(filter(None, [check.op, check.lowering, check.check]))
    _add(suite, name=str(check), classname=classname, outcome=check.outcome, detail=check.detail)
    _count(suite)
    if weak_checks([check]):  # no failure: CI servers show the output of a test that passed
        SubElement(suite[0], "system-out").text = _xml("\n".join(f"weak: {why}" for why in check.weak))
    return suite


def _case(suite: Element, verdict: Verdict, case: CaseResult) -> None:
    classname = ".".join(filter(None, [verdict.op, verdict.lowering, case.model]))
    _add(suite, name=verdict.case_name(case.case), classname=classname, outcome=case.outcome, detail=case.detail)


def _add(suite: Element, *, name: str, classname: str, outcome: Outcome, detail: str) -> None:
    element = SubElement(suite, "testcase", name=name, classname=classname)
    if tag := _TAGS.get(outcome):
        detail = _xml(detail)
        SubElement(element, tag, message=detail.partition("\n")[0]).text = detail


def _xml(text: str) -> str:
    return _NO_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def _count(element: Element) -> None:
    element.set("tests", str(len(element.findall(".//testcase"))))
    for tag, count in _COUNTS.items():
        element.set(count, str(len(element.findall(f".//{tag}"))))
