"""The stage `cases`: what is no error, and what lifts one. tests/faults/hollow.toml plants the errors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import write_data
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.judge import cases
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Case, Model, Random, Values
from tests.support.projects import ROOT, with_reference

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
