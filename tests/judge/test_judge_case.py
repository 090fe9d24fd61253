"""Each planted fault is found, and the message names the wrong part. The stage `cases`: what is no error, and what
lifts one. tests/faults/hollow.toml plants the errors.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import write_data
from opmatrix.data.arrays import Array
from opmatrix.data.truth import Judge
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.judge import cases
from opmatrix.judge.judge_case import CaseJudgement, CaseRuns, Outputs, judge_case
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Case, DType, Model, Random, Tolerance, Values
from tests.support.projects import ROOT, with_reference

RIGHT = np.array([[1.0, math.nan, math.inf], [4.0, 5.0, 6.0]], np.float32)
TOLERANCES: dict[DType, Tolerance] = {"float32": Tolerance(rtol=1e-3, atol=1e-5)}
SETTINGS = ("optimised", "not optimised", "on two threads")


def wrong(index: tuple[int, int] = (1, 1), value: float = 5.5) -> Array:
    made = RIGHT.copy()
    made[index] = value
    return made


def check(
    *,
    outputs: dict[str, tuple[Outputs, Outputs]] | None = None,
    everywhere: Array = RIGHT,
    expected: Array = RIGHT,
    evaluated: Array = RIGHT,
    overwritten: tuple[str, ...] = (),
    independent: bool = False,
    vectors: Outputs = (),
    judge: Judge = Judge(precision="declared dtype"),  # noqa: B008 - it is frozen
) -> CaseJudgement:
    runs = dict.fromkeys(SETTINGS, ((everywhere,), (everywhere,))) | (outputs or {})
    return judge_case(
        CaseRuns(
            names=["y"],
            expected=(expected,),
            outputs=runs,
            evaluated=(evaluated,),
            tolerances=TOLERANCES,
            overwritten=overwritten,
            independent=independent,
            vectors=vectors,
            source="paper",
            judge=judge,
        )
    )


def test_equal_results_have_no_message() -> None:
    found = check()
    assert found.detail == ""
    assert [r.name for r in found.runs][:2] == ["optimised", "optimised, again"]
    assert len(found.runs) == 6


BOTH, ALMOST, WRONG = (RIGHT, RIGHT), (wrong(value=5.000001),), (wrong(),)
# What a case has, and its message; "..." stands for what other rows test.
DETAILS: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong kernel": (
        {"everywhere": wrong()},
        "1 of 6 elements differs beyond rtol=0.001 atol=1e-05; worst at (1, 1): expected 5.0, got 5.5. "
        "The reference evaluator agrees with the expected output: kernel or reference is wrong",
    ),
    "a model without custom nodes, whose evaluator is apart from the reference": (
        {"everywhere": wrong(), "independent": True},
        "1 of 6...runs no reference.py here, and agrees with the expected output: ONNX Runtime is wrong",
    ),
    "a reference in float64": (
        {"everywhere": wrong(), "judge": Judge(precision="float64")},
        "1 of 6...: kernel or reference (in float64) is wrong",
    ),
    "a dtype": (
        {"everywhere": RIGHT.astype(np.float64)},
        "dtype is float64, expected float32. The reference evaluator agrees with the expected...",
    ),
    "a shape": ({"everywhere": RIGHT.ravel()}, "shape is (6,), expected (2, 3). ..."),
    "an additional output": ({"outputs": dict.fromkeys(SETTINGS, (BOTH, BOTH))}, "2 outputs, expected 1. ..."),
    "stale test data": (
        {"expected": wrong()},
        "1 of 6 elements differs beyond rtol=0.001 atol=1e-05; worst at (1, 1): expected 5.5, got 5.0. "
        "The reference evaluator agrees with ONNX Runtime: the test data are stale or the reference has changed "
        "(python -m opmatrix data), or the model does not have the attributes of the case (python -m opmatrix export)",
    ),
    "the evaluator alone": (
        {"evaluated": wrong()},
        "ONNX Runtime gives the expected output, the reference evaluator does not: 1 of 6...",
    ),
    "two runs of one session": (
        {"outputs": {"optimised": ((RIGHT,), ALMOST)}},
        "two equal runs of one session (optimised) give different numbers: at (1, 1) 5.0, then 5...",
    ),
    "two threads": ({"outputs": {"on two threads": (ALMOST, ALMOST)}}, "one thread and two give different..."),
    "the last digits, by an optimization": ({"outputs": {"not optimised": (ALMOST, ALMOST)}}, ""),
    "an input that the kernel wrote to": ({"overwritten": ("x",)}, "the kernel wrote to its input 'x'"),
}


@pytest.mark.parametrize("differs", DETAILS)
def test_a_difference_and_what_is_wrong(differs: str) -> None:
    given, message = DETAILS[differs]
    detail = check(**given).detail
    begins, more, ends = message.partition("...")
    assert detail.startswith(begins) and detail.endswith(ends) if more else detail == message


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"everywhere": wrong((0, 1), 0.0)}, "worst at (0, 1): expected nan, got 0.0. The reference"),
        ({"everywhere": wrong((0, 1), math.inf)}, "worst at (0, 1): expected nan, got inf. The reference"),
        ({"everywhere": wrong((0, 1), -math.inf)}, "worst at (0, 1): expected nan, got -inf. The reference"),
        ({"everywhere": wrong(value=math.nan)}, "expected 5.0, got nan"),
        ({"everywhere": wrong(), "evaluated": wrong(value=7.0)}, "agrees with neither"),
        ({"outputs": {"optimised": ((RIGHT,), WRONG)}}, "(only in these runs: optimised, again)"),
        ({"outputs": {"not optimised": (WRONG, WRONG)}}, "(only in these runs: not optimised; not optimised, again)"),
    ],
)
def test_where_values_differ(given: dict[str, Any], part: str) -> None:
    assert part in check(**given).detail


THREE = {
    "the kernel": (wrong(), RIGHT, RIGHT, "The kernel alone differs: reference and the vectors (paper) agree"),
    "the vectors": (RIGHT, RIGHT, wrong(), "The vectors (paper) alone differ: kernel and reference agree"),
    "all": (wrong(), RIGHT, wrong(value=7.0), "Reference, kernel and the vectors (paper) all differ"),
    "none": (RIGHT, RIGHT, RIGHT, ""),
}


@pytest.mark.parametrize("alone", THREE)
def test_the_one_of_three_voices_that_is_alone_is_named(alone: str) -> None:
    kernel, reference, vectors, message = THREE[alone]
    found = check(everywhere=kernel, expected=reference, evaluated=reference, vectors=(vectors,)).detail
    assert found.endswith(message) and bool(found) == bool(message)


def test_a_voice_between_two_others_is_alone_with_none() -> None:
    """The tolerance, 0.005, is between the outer two and not between neighbours."""
    outer, other = wrong(value=5.004), wrong(value=4.996)
    found = check(everywhere=outer, expected=other, evaluated=other, vectors=(RIGHT,)).detail
    assert found.endswith("Reference and kernel disagree; the vectors (paper) agree with both")


REFERENCE = """
import numpy as np

def shifted(x, mask, bias, *, factor):
    if factor < -100:
        raise ValueError("factor is too small")
    return np.where(mask, x * np.float32(factor), x) + (0 if bias is None else bias)
"""
SPEC = load_operator(Paths(ROOT / "tests/projects/hollow"), "shifted").spec


def model(dtype: Any, **inputs: Any) -> Model:
    given = {"x": Random(shape=(5,)), "mask": Random(shape=(5,)), "bias": Random(shape=(5,))} | inputs
    return Model(
        name=f"plain_{dtype}",
        types={"T": dtype},
        attributes={"factor": 3.0},
        cases=(Case(name=f"plain_{dtype}", inputs=given),),
    )


OPERATOR = Operator(spec=SPEC, models=(model("float32"), model("float64")))


def run(root: Path, operator: Operator, reference: str = REFERENCE) -> dict[str, Any]:
    """Return the record of the check; its detail is what the stage raises, if it does."""
    paths = with_reference(root, "shifted", reference)
    write_data.run(paths, operator)
    try:
        cases.run(paths, operator)
        raised = ""
    except DataError as error:
        raised = str(error)
    found: dict[str, Any] = json.loads(paths.cases_record("shifted").read_text())
    assert (found["outcome"] == "failed") is bool(raised)
    assert not raised or found["detail"] == raised
    return found


def problem(root: Path, operator: Operator, reference: str = REFERENCE) -> str:
    """Return the one line that is wrong."""
    lines: list[str] = run(root, operator, reference)["detail"].splitlines()
    assert len(lines) <= 1, lines
    return lines[0].removeprefix("ops/shifted/cases.py: ") if lines else ""


def with_spec(**fields: Any) -> Operator:
    return replace(OPERATOR, spec=replace(SPEC, **fields))


def with_inputs(**inputs: Any) -> Operator:
    return replace(OPERATOR, models=(model("float32", **inputs), model("float64", **inputs)))


def with_part(kind: str, index: int, **fields: Any) -> Operator:
    """Return the operator with other fields of an input, an attribute or an output."""
    parts = [*getattr(SPEC, kind)]
    parts[index] = replace(parts[index], **fields)
    return with_spec(**{kind: tuple(parts)})


def test_cases_that_tell_every_wrong_kernel_are_verified(tmp_path: Path) -> None:
    found = run(tmp_path, OPERATOR)
    assert (found["outcome"], found["detail"]) == ("verified", "")
    assert [result["case"] for result in found["results"]] == ["plain_float32", "plain_float64"]


IGNORES_BIAS = REFERENCE.replace("(0 if bias is None else bias)", "0")
IGNORES_FACTOR = REFERENCE.replace("np.float32(factor)", "2")


def test_an_argument_that_the_reference_refuses_counts_as_told_apart(tmp_path: Path) -> None:
    """With a default that the reference rejects, and an input that may only be as it is."""
    refusing = REFERENCE.replace(
        "    if factor", "    if not x.any() or (x == 1).all():\n        raise ValueError\n    if factor"
    )
    assert problem(tmp_path, with_part("attributes", 0, default=-200.0), refusing) == ""


def test_a_single_element_that_may_only_have_some_values(tmp_path: Path) -> None:
    """No other value can be in its place, so it is no finding."""
    one = {name: Values(values=(value,)) for name, value in (("x", 5.0), ("mask", True), ("bias", 3.0))}
    checking = "    if bias is None or bias[0] < 2:\n        raise ValueError\n    if factor"
    found = run(tmp_path, with_inputs(**one), REFERENCE.replace("    if factor", checking))["detail"]
    assert "input 'bias'" not in found and "no case distinguishes input 'mask' from ones" in found


@pytest.mark.parametrize(
    ("made", "reference"),
    [
        (with_part("inputs", 2, no_effect="only its shape counts"), IGNORES_BIAS),
        (with_part("attributes", 0, no_effect="a hint for the speed"), IGNORES_FACTOR),
        (with_part("outputs", 0, no_effect="the mask is false in every case"), "masked"),
    ],
    ids=["input", "attribute", "output"],
)
def test_a_declared_reason_lifts_it(made: Operator, reference: str, tmp_path: Path) -> None:
    if reference == "masked":  # then the other parts have no effect either
        inputs = (*(replace(p, no_effect="a copy of x") for p in SPEC.inputs[1:]),)
        attributes = (replace(SPEC.attributes[0], no_effect="a copy of x"),)
        made = replace(made, spec=replace(made.spec, inputs=(SPEC.inputs[0], *inputs), attributes=attributes))
        reference = "def shifted(x, mask, bias, *, factor):\n    return x\n"
    assert problem(tmp_path, made, reference) == ""


def test_an_attribute_that_is_the_size_of_an_input_needs_no_other_value(tmp_path: Path) -> None:
    """As `n` in operators of mmcv, which a reference may ignore: another value would be refused."""
    reference = REFERENCE.replace("*, factor", "*, n, factor")
    count = Attribute(name="n", kind="int", minimum=0)
    models = tuple(replace(m, attributes={"factor": 3.0, "n": 5}) for m in OPERATOR.models)
    inputs = (replace(SPEC.inputs[0], dims=("n",)), *(replace(i, dims=None, same_as="x") for i in SPEC.inputs[1:]))
    made = replace(with_spec(attributes=(count, *SPEC.attributes), inputs=inputs), models=models)
    assert problem(tmp_path / "size", made, reference) == ""
    made = replace(made, spec=replace(made.spec, inputs=SPEC.inputs))
    assert "no case distinguishes attribute 'n' from the value 6" in problem(tmp_path / "number", made, reference)


def test_a_single_case_that_tells_nothing_is_a_note(tmp_path: Path) -> None:
    zeros = Case(name="zeros", inputs=dict.fromkeys(("x", "bias"), Values(values=(0.0,) * 5)) | {
        "mask": Random(shape=(5,))})  # fmt: skip
    first = OPERATOR.models[0]
    found = run(tmp_path, replace(OPERATOR, models=(replace(first, cases=(*first.cases, zeros)), OPERATOR.models[1])))
    assert found["outcome"] == "verified"
    assert {r["case"]: r.get("note") for r in found["results"]} == {
        "plain_float32": None, "zeros": "every expected element is 0 or NaN, or there is none", "plain_float64": None,
    }  # fmt: skip


def test_with_fill_in_left_it_is_no_error_yet(tmp_path: Path) -> None:
    reference = "# TODO: the arithmetic\ndef shifted(x, mask, bias, *, factor):\n    return x\n"
    found = run(tmp_path, OPERATOR, reference)
    assert found["outcome"] == "unsupported"
    assert found["detail"].startswith("TODOs are left in reference.py, so these are not errors yet:\nops/shifted/")


def test_a_small_case_is_enough(tmp_path: Path) -> None:
    """A case of millions of elements is not even read where a small one tells."""
    large = Case(name="large", inputs=dict.fromkeys(("x", "mask", "bias"), Random(shape=(30_000,))))
    first = replace(OPERATOR.models[0], dynamic=dict.fromkeys(("x", "mask", "bias"), ("N",)))
    operator = replace(OPERATOR, models=(replace(first, cases=(*first.cases, large)), OPERATOR.models[1]))
    paths: Paths = with_reference(tmp_path, "shifted", REFERENCE)
    write_data.run(paths, operator)
    for path in paths.data("shifted", "plain_float32", 1).iterdir():
        path.unlink()
    cases.run(paths, operator)
