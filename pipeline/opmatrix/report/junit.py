"""The report as JUnit XML: a test suite per cell, a test case per case.

Format: the schema that Jenkins and GitLab read, https://github.com/testmoapp/junitxml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from opmatrix.verdict import CaseResult, Outcome, Verdict

_TAGS: Mapping[Outcome, str] = {"mismatched": "failure", "failed": "error", "unsupported": "skipped"}
_COUNTS = {"failure": "failures", "error": "errors", "skipped": "skipped"}
# A crash may leave characters in a log that XML does not have.
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(verdicts: Sequence[Verdict]) -> bytes:
    """Return the XML document."""
    root = Element("testsuites", name="opmatrix")
    root.extend(map(_suite, verdicts))
    _count(root, sum(v.seconds for v in verdicts))
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
    _count(suite, verdict.seconds)
    return suite


def _case(suite: Element, verdict: Verdict, case: CaseResult) -> None:
    classname = ".".join(filter(None, [verdict.op, verdict.lowering, case.model]))
    element = SubElement(suite, "testcase", name=verdict.case_name(case.case), classname=classname)
    if tag := _TAGS.get(case.outcome):
        detail = _NO_XML.sub("\N{REPLACEMENT CHARACTER}", case.detail)
        SubElement(element, tag, message=detail.partition("\n")[0]).text = detail


def _count(element: Element, seconds: float) -> None:
    element.set("tests", str(len(element.findall(".//testcase"))))
    for tag, count in _COUNTS.items():
        element.set(count, str(len(element.findall(f".//{tag}"))))
    element.set("time", f"{seconds:.3f}")
