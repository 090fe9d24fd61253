from __future__ import annotations

from opmatrix.engine.forecast import Expected
from opmatrix.engine.progress_reporter import describe


def test_the_text_after_the_elapsed_time() -> None:
    assert describe([], left=0) == ""
    assert describe(["compile:a"], left=0.4) == "compile:a"
    assert describe(["compile:a", "data:a"], left=80.2) == "at most 1:20 left  compile:a and 1 more"
    assert describe(["compile:a"], left=80.2, failed=2) == "at most 1:20 left  2 failed  compile:a"


def test_the_remaining_time_is_divided_by_the_cores() -> None:
    expected = Expected({"compile:a": 3.0, "verify:a": 1.0}, {}, 2)
    assert expected.left(set()) == 2
    assert expected.left({"compile:a", "codegen:a"}) == 0.5
