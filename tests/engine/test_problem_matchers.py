"""The problem matchers of docs/how-to/watch.md find the causes that a run prints."""

from __future__ import annotations

import json
import re
from typing import Any

from opmatrix.basics.errors import Cause
from opmatrix.engine.causes import Causes, summary
from opmatrix.engine.step_failure import StepFailed
from opmatrix.records.step import Step
from tests.docs.page import Write, parse
from tests.support.projects import ROOT

PAGE = "docs/how-to/watch.md"


def written(path: str) -> Any:
    steps = parse(PAGE, (ROOT / PAGE).read_text()).steps
    return json.loads(next(step.text for step in steps if isinstance(step, Write) and step.path == path))


def last_lines() -> list[str]:
    step = Step(group="compile", name="relu", command=("compile", "relu"), operator="relu")
    told = Cause(sentence="expected ';' before 'for'", file="native/relu/kernel.h", line=12)
    causes = Causes()
    causes.add(StepFailed(step, summary="failed with exit code 6", output="x", told=told))
    return "\n".join(summary([*causes], rest="", width=80)).splitlines()


def test_they_find_file_line_and_sentence() -> None:
    [of_github] = written(".github/opmatrix.json")["problemMatcher"]
    of_editor, _ = written(".vscode/tasks.json")["tasks"][0]["problemMatcher"]
    assert of_github["pattern"] == of_editor["pattern"]
    place, message = of_github["pattern"]
    lines = last_lines()
    at = next(n for n, line in enumerate(lines) if re.search(place["regexp"], line))
    found = re.search(place["regexp"], lines[at])
    said = re.search(message["regexp"], lines[at + 1])
    assert found and said
    assert (found[place["file"]], found[place["line"]]) == ("native/relu/kernel.h", "12")
    assert said[message["message"]] == "expected ';' before 'for'"


def test_they_find_the_compilers_errors() -> None:
    pattern = written(".vscode/tasks.json")["tasks"][0]["problemMatcher"][1]["pattern"]
    found = re.search(pattern["regexp"], "  native/relu/kernel.h:64:3: error: expected ';'")
    assert found and [found[pattern[key]] for key in ("file", "line", "column", "severity", "message")] == [
        "native/relu/kernel.h", "64", "3", "error", "expected ';'",
    ]  # fmt: skip
