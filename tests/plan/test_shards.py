"""The parts of `doit --shard`: each cell in one, equal costs, the same on every machine, few moves."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opmatrix.basics.errors import UsageError
from opmatrix.plan import shards
from opmatrix.plan.shards import Shard, divide, targets
from opmatrix.plan.steps import steps
from opmatrix.project.cells import Cell, Choice, all_cells
from opmatrix.project.paths import Paths
from opmatrix.records.step import CheckKey, Step, cell_step_name
from tests.plan.test_step_keys import ROOT, default_plan

# Mean seconds of this repository's steps on a quiet machine, torch 2.13, ONNX Runtime 1.31.
MEASURED: dict[str, dict[str, Any]] = {
    "add_and_round": {"register": 0.40, "export": {"legacy": 0.08, "dynamo": 0.20}, "verify": 0.06},
    "custom_op_one": {"register": 0.00, "export": {"node": 0.03}, "verify": 0.10},
    "custom_op_two": {"register": 0.00, "export": {"node": 0.03}, "verify": 0.09},
    "dual_residual": {"register": 0.15, "export": {"legacy": 0.11, "dynamo": 0.35}, "verify": 0.09},
    "gelu": {"register": 0.12, "export": {"legacy": 0.06, "dynamo": 0.14}, "verify": 0.03},
    "group_norm": {"register": 0.33, "export": {"legacy": 0.20, "dynamo": 0.62}, "verify": 0.15},
    "inverse": {"register": 0.12, "export": {"legacy": 0.07, "dynamo": 0.70}, "verify": 0.05},
    "nms": {"register": 0.33, "export": {"legacy": 0.15, "dynamo": 1.04}, "verify": 0.09},
}


def verify(operator: str, cell: Cell) -> Step:
    name = cell_step_name("verify", operator, "custom", cell)
    return Step(
        group="verify", name=name, command=("verify",), operator=operator, lowering="custom", cell=cell, verdict=name
    )


def register(operator: str, torch: str) -> Step:
    key = CheckKey(operator, "kernel", torch=torch)
    return Step(group="register", name=str(key), command=("register",), operator=operator, check=key, verdict=str(key))


CELLS = [*all_cells()]
NAMES = st.sampled_from("abcdef")
ONE = st.integers(0, len(CELLS) - 1).map(lambda number: CELLS[number])
SOME = st.lists(
    st.one_of(
        st.builds(verify, NAMES, ONE),
        st.builds(register, NAMES, st.sampled_from(["1.13", "2.6", "2.9", "2.13"])),
    ),
    unique_by=lambda step: step.task,
    max_size=200,
)
COSTS = st.dictionaries(st.sampled_from(["verify", "register", "export dynamo", "export legacy"]), st.floats(0.01, 30))


@given(SOME, st.integers(1, 12), COSTS, st.randoms())
def test_each_step_is_in_one_part_and_the_parts_cost_the_same(
    found: list[Step], of: int, costs: dict[str, float], random: Random
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "_SECONDS", costs)
        parts = divide(found, of=of, needs={})
        assert len(parts) == of
        assert Counter(step.task for part in parts for step in part) == Counter(step.task for step in found)
        shuffled = [replace(step, config="of another machine", reads=("/elsewhere/case.py",)) for step in found]
        random.shuffle(shuffled)
        assert names(divide(shuffled, of=of, needs={})) == names(parts), "only the names of steps decide"
        units: dict[shards._Place, list[Step]] = {}
        for step in found:
            units.setdefault(shards._place(step), []).append(step)
        cost_of = dict(zip(sorted(units), shards._seconds(units, {}), strict=True))
        share, largest = sum(cost_of.values()) / of, max(cost_of.values(), default=0)
        for part in parts:
            places = {shards._place(step) for step in part}
            assert sum(len(units[place]) for place in places) == len(part), "what shares an export is in one part"
            cost = sum(cost_of[place] for place in places)
            assert abs(cost - share) <= 2 * shards._MOVE * share + largest + 1e-6


def names(parts: list[list[Step]]) -> list[list[str]]:
    return [[step.task for step in part] for part in parts]


@pytest.fixture(scope="module")
def planned() -> list[Step]:
    return [*steps(default_plan(Paths(ROOT), Choice(torch="all", ort="all")))]


@pytest.fixture(scope="module")
def matrix(planned: list[Step]) -> list[Step]:
    """The cells and checks of this repository in every torch and ONNX Runtime."""
    return [step for step in planned if step.verdict and step.group in ("verify", "register", "cases", "draw-inputs")]


@pytest.fixture(scope="module")
def needs(planned: list[Step]) -> dict[str, list[str]]:
    writers = {path: step.task for step in planned for path in step.writes}
    return {step.task: [writers[path] for path in step.reads if path in writers] for step in planned}


def measured(part: list[Step], needs: dict[str, list[str]]) -> float:
    """Return what a part takes, by each operator's own seconds."""
    exports = {(s.operator, s.lowering, s.cell.export_name, s.cell.exporter) for s in part if s.cell}
    torches = {step.cell.torch if step.cell else step.check.torch for step in part if step.cell or step.check} - {None}
    alone = {task for step in part if not step.cell for task in needs[step.task] if re.match("compile:.*@", task)}
    return (
        sum(MEASURED[op]["export"][exporter] for op, _, _, exporter in exports)
        + sum(MEASURED[step.operator].get(step.group, 0.03) for step in part)
        + 3.7 * len(torches)
        + 3.8 * len(alone)
    )


ALL_TORCHES = [(of, "", 0.1) for of in (2, 3, 4, 5)] + [(of, "", 0.15) for of in (8, 10)]


@pytest.mark.parametrize(
    ("of", "torch", "within"), [*ALL_TORCHES, *((of, torch, 0.15) for of in (2, 3) for torch in ("2.6", "2.13"))]
)
def test_parts_of_the_whole_matrix_and_of_one_torch_take_about_as_long(
    matrix: list[Step], needs: dict[str, list[str]], of: int, torch: str, within: float
) -> None:
    """As in `doit torch=2.13 ort=all --shard 1/2`. Measured operator by operator, though the cut is made with the mean
    of all operators."""
    own = [s for s in matrix if torch in ("", s.cell.torch if s.cell else s.check.torch if s.check else None)]
    took = [measured(part, needs) for part in divide(own, of=of, needs=needs)]
    assert len(own) > 300 and max(abs(one * of / sum(took) - 1) for one in took) <= within, took


def test_a_part_makes_few_environments(matrix: list[Step]) -> None:
    def torches(found: list[Step], of: int) -> list[set[str | None]]:
        parts = divide(found, of=of, needs={})
        return [{step.cell.torch for step in part if step.cell and step.cell.torch} for part in parts]

    assert sum(map(len, torches(matrix, 5))) <= 6 + 4
    of_one = [step for step in matrix if step.cell and step.cell.torch in ("2.9", "2.13")]
    assert torches(of_one, 2) == [{"2.9"}, {"2.13"}]
    more = [*of_one, *(verify("zero", cell) for cell in CELLS if cell.torch == "2.9" and cell.opset in (18, 20))]
    assert torches(more, 2) == [{"2.9"}, {"2.13"}], "a part is up to a tenth larger, so that it makes one environment"


def test_another_operator_moves_few_cells(matrix: list[Step]) -> None:
    cells = dict.fromkeys(step.cell for step in matrix if step.operator == "gelu" and step.cell)
    more = [*matrix, *(verify("hardswish", cell) for cell in cells if cell)]
    before, after = (
        {step.task: i for i, part in enumerate(divide(all_, of=5, needs={})) for step in part}
        for all_ in (matrix, more)
    )
    moved = sum(after[task] != part for task, part in before.items())
    assert moved <= 0.04 * len(before), f"{moved} of {len(before)}"


def test_what_compares_the_exports_of_several_parts_is_in_none(root: Path) -> None:
    planned = [*steps(default_plan(Paths(root)))]
    joint = [step for step in planned if step.is_joint]
    assert joint and not {step.task for step in joint} & {
        step.task for part in divide(planned, of=3, needs={}) for step in part
    }


def test_steps_that_others_need_are_no_targets() -> None:
    made = {
        "compile:a": Step(group="compile", name="a", command=("compile",)),
        "cases:a": Step(group="cases", name="a", command=("cases",), verdict="cases.json"),
        "verify:a": Step(group="verify", name="a", command=("verify",), verdict="a.json"),
    }
    needs = {"compile:a": ["codegen:a"], "cases:a": ["data:a"], "verify:a": ["compile:a", "cases:a"]}
    assert [step.task for step in targets(made, needs)] == ["cases:a", "verify:a"]
    assert [step.task for step in targets({"compile:a": made["compile:a"]}, needs)] == ["compile:a"]


@pytest.mark.parametrize("text", ["0/5", "6/5", "x", "2/5/6", "5", "-1/5", "1/0", "1 / 2", "²/5", ""])
def test_another_part_is_an_error(text: str) -> None:
    assert str(Shard.parse("2/5")) == "2/5" and Shard.parse("5/5") == Shard(number=5, of=5)
    with pytest.raises(UsageError, match=re.escape(f"--shard {text!r}: write which part of how many, such as 2/5")):
        Shard.parse(text)
