"""The pictures in docs/images are current, and show what the plan, tables and pages have: docs.site.diagrams."""

from __future__ import annotations

import os
import re

import pytest

from docs.site import diagrams
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.project.cells import ORT, Choice
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/architecture.md").read_text()


def fields(svg: str, row: str) -> list[tuple[str, str]]:
    """Return the class and the text of each field in a row of a grid."""
    (part,) = re.findall(rf">{row}</text>\n((?:<(?:rect|text class=\"text number\").*\n)+)", svg)
    return re.findall(r'<rect class="(\w+)".*/>\n(?:<text class="text number".*>(\d+)</text>)?', part)


@pytest.mark.compile
def test_the_pictures_are_current() -> None:
    steps = load_or_plan(Paths(ROOT), choice=Choice(opsets="18"), environ=os.environ)
    for name, text in diagrams.pictures(steps, PAGE).items():
        path = ROOT / diagrams.FOLDER / name
        assert path.is_file() and path.read_text() == text, f"{path} is out of date; run {diagrams.COMMAND}"


def test_an_arrow_leads_from_what_is_written_to_what_reads_it() -> None:
    """An arrow that follows from others is left out, as from spec.py to verify here."""
    name = diagrams.OPERATOR
    declared = (f"ops/{name}/spec.py",)
    steps = [
        Step(group="codegen", name=name, operator=name, command=(), declared=declared, writes=("build/torch.cc",)),
        Step(group="compile", name=name, operator=name, command=(), reads=("build/torch.cc",), writes=("lib.so",)),
        Step(group="verify", name="x", operator=name, command=(), reads=("lib.so",), declared=declared),
        Step(group="verify", name="y", operator="another", command=(), reads=("build/torch.cc",)),
    ]
    assert diagrams.flow(steps).count('class="arrow"') == 3


def test_a_field_has_the_number_of_onnx_runtimes() -> None:
    shown = fields(diagrams.matrix(), "torch 2.13, legacy")
    assert shown[0] == ("on", str(len(ORT)))
    assert shown[13] == ("part", str(len(ORT) - 1)), "opset 20, which ONNX Runtime 1.16 does not read"
    assert shown[14] == ("off", ""), "opset 21, which the exporter does not write"


def test_a_change_runs_what_its_row_names() -> None:
    page = PAGE.replace("| kernel | compile, register", "| kernel | codegen, register")
    assert page != PAGE
    before, after = ([kind for kind, _ in fields(diagrams.reruns(text), "the kernel")] for text in (PAGE, page))
    assert before == ["off", "on", "off", "off", "on", "off", "on", "on"]
    assert after == ["on", "off", "off", "off", "on", "off", "on", "on"]
    assert {kind for kind, _ in fields(diagrams.reruns(PAGE), "a README")} == {"off"}


def test_a_change_without_a_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="no row 'README'"):
        diagrams.reruns(PAGE.replace("| README |", "| NOTES |"))
