"""The file of calls for ThreadSanitizer: what it contains, in which order, and what is too large for it.

That the C++ program reads what is written here is tested in tests/operators/test_races.py.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.data.reference import Reference
from opmatrix.ort_checks import races
from opmatrix.search.drawn import DrawnCase, evaluate
from tests.support.double import DYNAMIC, OPERATOR, SPEC, project


def calls(root: Path) -> list[DrawnCase]:
    paths = project(root)
    drawn = evaluate(SPEC, replace(DYNAMIC, name="drawn", cases=DYNAMIC.cases[:1]), Reference(paths, SPEC))
    refused = replace(drawn, expected=None, refusal="no")
    return [*races.stored_calls(OPERATOR, [drawn, refused], Reference(paths, SPEC))]


def test_cases_drawn_inputs_and_a_larger_one(tmp_path: Path) -> None:
    found = calls(tmp_path)
    assert [call.model.name for call in found] == ["drawn", "plain", "special", "empty", "large", "large (repeated)"]
    assert found[-1].arrays[0].size >= 2 * found[-2].arrays[0].size  # as often as the time of the search allows


def test_an_unsupported_model_has_no_calls(tmp_path: Path) -> None:
    operator = replace(OPERATOR, models=(replace(DYNAMIC, unsupported="nothing runs it"),))
    assert [*races.stored_calls(operator, [], Reference(project(tmp_path), SPEC))] == []


def test_one_call_in_the_file(tmp_path: Path) -> None:
    call = replace(calls(tmp_path)[0], model=replace(DYNAMIC, name="one", types={"T": "float64"}))
    call = replace(
        call, arrays=[a.astype("float64") for a in call.arrays], expected=(call.arrays[0].astype("float64"),)
    )
    assert races.write_calls(tmp_path / "calls", SPEC, [call]) == []
    shape = struct.pack("=3q", 2, 2, 3)
    x = call.arrays[0].tobytes()
    assert (tmp_path / "calls").read_bytes() == b"".join([
        struct.pack("=2q", 1, 3), b"one", struct.pack("=q", 1),  # the second dtype
        struct.pack("=2q", 1, 1), shape, struct.pack("=q", 48), x, struct.pack("=q", 0),  # one input of one tensor
        struct.pack("=3qf", 1, 0, 4, 2.0),  # factor, without axes
        struct.pack("=q", 1), shape,
        struct.pack("=q", races.END),
    ])  # fmt: skip


def test_the_largest_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "MOST_BYTES", 100_000)
    assert races.write_calls(tmp_path / "calls", SPEC, calls(tmp_path)) == ["large (repeated)"]
    assert (tmp_path / "calls").read_bytes()[:8] == struct.pack("=q", 5)
