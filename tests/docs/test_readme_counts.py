"""The sentence of README with the totals of the whole matrix."""

from __future__ import annotations

import pytest

from docs.site.readme_counts import put, sentence
from opmatrix.basics.errors import ReportError


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
