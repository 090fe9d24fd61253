"""docs.site.screenshots: a picture of a terminal shows what it shows, and the operators have the line for the fault."""

from __future__ import annotations

from xml.etree import ElementTree

from docs.site import screenshots
from tests.docs.pages import ROOT

_TEXT = "{http://www.w3.org/2000/svg}text"


def test_a_picture_has_the_last_lines_with_their_colours_and_columns() -> None:
    svg = screenshots.terminal("doit", "gone\r\n" * 30 + "\x1b[31mwrong\x1b[0m <1> & \x1b[1mbold\x1b[0m\r\n")
    shown = [(e.text, e.get("fill"), e.get("font-weight")) for e in ElementTree.fromstring(svg).iter(_TEXT)]
    assert shown.count(("gone", "#d0d7de", None)) == screenshots.LINES - 2
    assert shown[-3:] == [("wrong", "#ff7b72", None), (" <1> &", "#d0d7de", None), ("bold", "#d0d7de", "700")]
    assert len({e.get("x") for e in [*ElementTree.fromstring(svg).iter(_TEXT)][-3:]}) == 3


def test_the_fault_of_the_screenshot_fits_the_kernel() -> None:
    kernel = (ROOT / "native/group_norm/kernel.h").read_text()
    assert kernel.count(screenshots.FAULT[0]) == 1
