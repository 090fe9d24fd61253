"""The convention of documentation pages: what a page's text means, and which mistakes are reported.
docs.site.screenshots: a picture of a terminal shows what it shows, and the operators have the line for the fault.
The sentence of README with the totals of the whole matrix. The pictures in docs/images are current, and show what
the plan, tables and pages have: docs.site.diagrams.
"""

from __future__ import annotations

import os
import re
from xml.etree import ElementTree

import pytest

from docs.site import diagrams, screenshots
from docs.site.readme_counts import put, sentence
from opmatrix.basics.errors import ReportError
from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.project.cells import ORT, Choice
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from tests.docs.page import Command, NotRun, PageError, Python, Shown, Write, parse
from tests.docs.pages import ROOT
from tests.docs.transcript import difference, fits


def test_a_page_becomes_steps() -> None:
    text = """# Title
<!-- project: seeds -->

```console
$ first
out
  more

$ second <<END
> text
> END

last
```

- In a list:

  ```python
  x = 1
  ```

<!-- shown: a.py -->
<!-- write: b.py -->
```python
pass
```

<!-- exit: 2 -->

```console
$ one
$ two
```

<!-- not run: needs a network -->
```console
$ three
```

```yaml
not: executed
```

<!-- A comment for those who write. -->

    $ indented
"""
    page = parse("docs/x.md", text)
    assert page.project == "seeds"
    assert page.steps == (
        Command(line=5, text="first", expected=("out", "  more")),
        Command(line=9, text="second <<END\ntext\nEND", expected=("last",)),
        Python(line=19, text="x = 1\n"),
        Shown(line=25, path="a.py", text="pass\n"),
        Write(line=25, path="b.py", text="pass\n"),
        Command(line=31, text="one"),
        Command(line=32, text="two", code=2),
        NotRun(line=37, reason="needs a network"),
    )
    assert page.runs
    assert not parse("x.md", "<!-- not run: it hurts -->\n```console\n$ three\n```\n").runs


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<!-- nor run: x -->\n```console\n$ a\n```", "1: unknown comment 'nor run:'; did you mean 'not run'? allowed"),
        ("\n<!-- skip: x -->\n", "2: unknown comment 'skip:'; allowed: project"),
        ("<!-- exit: 1 -->\n\nText.\n\n```console\n$ a\n```", "1: <!-- exit: 1 --> stands before no code block"),
        ("<!-- exit: 1 -->\n```python\nx\n```", "3: exit: takes a number, before a console block"),
        ("<!-- in: seeds -->\n```console\n$ a\n```", "3: in: takes clone or installed, before a console block"),
        ("<!-- in: clone -->\n```python\na\n```", "3: in: takes clone or installed, before a console block"),
        ("<!-- exit: no -->\n```console\n$ a\n```", "3: exit: takes a number, before a console block"),
        ("<!-- exit: -->\n```console\n$ a\n```", "1: <!-- exit: --> says nothing behind its colon"),
        ("<!-- not run -->\n```console\n$ a\n```", "1: <!-- not run --> says nothing behind its colon"),
        ("<!-- not run: x -->\n```yaml\na\n```", "3: not run: stands alone before a block that would be run"),
        ("<!-- write: ../a -->\n```\na\n```", "3: '../a' is not a path within the project"),
        ("<!-- write: /a -->\n```\na\n```", "3: '/a' is not a path within the project"),
        ("```console\nls\n```", "2: a console block begins with a command, after '$ '"),
        ("Text <!-- exit: 1 --> text.", "1: <!-- exit: 1 --> shares its line with text"),
        ("<!-- write: a -->", "1: <!-- write: a --> stands before no code block"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(text: str, what: str) -> None:
    with pytest.raises(PageError, match=r"(?s)^docs/x\.md:") as raised:
        parse("docs/x.md", text)
    assert str(raised.value).startswith(f"docs/x.md:{what}")


def test_all_mistakes_are_reported() -> None:
    with pytest.raises(PageError) as raised:
        parse("x.md", "<!-- skip: x -->\n\n<!-- not: x -->\n\n```console\nls\n```\n")
    assert [line.partition(" ")[0] for line in str(raised.value).splitlines()] == ["x.md:1:", "x.md:3:", "x.md:6:"]


@pytest.mark.parametrize(
    ("expected", "line", "does"),
    [
        ("a ... z", "a b c z", True),
        ("a ... z", "a b c", False),
        ("...", "", True),
        ("a.c", "abc", False),
        ("[1/9] 0.4s compile:x", "[1/9] 12.0s compile:x", True),
        ("[1/9] 0.4s compile:x", "[2/9] 0.4s compile:x", False),
        ("in 5.2 s, 15 run", "in 113 s, 15 run", True),
        ("in 5.2 s, 15 run", "in 113 s, 16 run", False),
        ("takes 0.047 ms", "takes 3 s", True),
        ("opset18 sums", "opset19 sums", False),
        ("torch2.13s", "torch2.14s", False),
    ],
)
def test_a_line_matches_or_not(expected: str, line: str, does: bool) -> None:
    assert fits(expected, line) is does


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (["a", "...", "z"], "a\nz"),
        (["a", "...", "z"], "a\nz\ny\nz\n"),
        (["...", "b", "..."], "a\nb\nb\nc"),
        (["..."], ""),
        (["a"], "\n\na  \n\n"),
        (["a", "", "b"], "a\n\nb"),
        (["a", "b"], "a\n[1/2] 10s so far data:x: 3 of 9 cases\n  0:10: 3 of 9 cases, about 0:20 left\nb"),
    ],
)
def test_output_as_expected(expected: list[str], found: str) -> None:
    assert difference(expected, found) == ""


@pytest.mark.parametrize(
    ("expected", "found", "differs"),
    [
        (["a", "b"], "a", "  a\n- b"),
        (["a"], "a\nb", "  a\n+ b"),
        (["a", "...", "z"], "a\nb\nc", "  a\n  ...\n- z"),
        (["a", "...", "z", "end"], "a\nb\nz\nc", "  a\n  ...\n  z\n- end\n+ c"),
        (["a", "", "b"], "a\nb", "  a\n-\n  b"),
        (["a"], "", "- a"),
        (["0.1s x", "0.1s y"], "5s x\n5s z", "  5s x\n- 0.1s y\n+ 5s z"),
    ],
)
def test_output_that_differs_is_shown(expected: list[str], found: str, differs: str) -> None:
    assert difference(expected, found) == differs


def test_long_output_is_shortened() -> None:
    lines = difference(["0"], "\n".join(map(str, range(101)))).splitlines()
    assert len(lines) == 42 and lines[0] == "  0" and lines[21] == "+ ... 60 more lines" and lines[-1] == "+ 100"


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


def report(**outcomes: int) -> dict[str, object]:
    counts = {"verified": 0, "mismatched": 0, "failed": 0, "unsupported": 0} | outcomes
    cells = [
        {"op": "a", "torch": "2.13", "ort": "1.31"},
        {"op": "b", "torch": "2.9", "ort": "1.16"},
        {"op": "b", "torch": None, "ort": "1.31"},
    ]
    return {"counts": {"cells": sum(counts.values()), **counts}, "cells": cells}


def test_the_sentence_has_the_totals() -> None:
    assert sentence(report(verified=1500, unsupported=20)) == (
        "**1,520 cells: 1,500 verified, 20 unsupported for a stated reason, 0 failed**; 2 operators, 2 versions of "
        "torch (2.9, 2.13), 2 of ONNX Runtime (1.16, 1.31)."
    )


def test_a_report_with_faults_is_refused() -> None:
    with pytest.raises(ReportError, match="2 of 9 cells are neither verified nor unsupported"):
        sentence(report(verified=7, failed=1, mismatched=1))
    with pytest.raises(ReportError, match="1 of 4 checks failed"):
        sentence(report(verified=7) | {"check_counts": {"checks": 4, "failed": 1}})


def test_the_sentence_replaces_the_text_between_the_comments() -> None:
    page = "before\n<!-- counted: how -->\nold\n<!-- /counted -->\nafter\n"
    assert put(page, "new") == page.replace("old", "new")
    with pytest.raises(ReportError, match="found 0 places"):
        put("nothing", "new")


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
