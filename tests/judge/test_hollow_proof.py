"""Cases that let a wrong kernel pass, planted in a small operator: each is an error of the stage `cases`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import write_data
from opmatrix.declaration.load import Operator
from opmatrix.judge import cases
from opmatrix.project.paths import Paths
from opmatrix.spec import Attribute, Case, FromKernel, Model, Random, Tolerance, Values
from tests.support.projects import with_reference
from tests.support.specs import FLOATS, declare

REFERENCE = """
import numpy as np

def shifted(x, mask, bias, *, factor):
    if factor < -100:
        raise ValueError("factor is too small")
    return np.where(mask, x * np.float32(factor), x) + (0 if bias is None else bias)
"""
SPEC = declare(
    "shifted(x: T[N], mask: bool[N], bias: T[N]?, factor=2.0) -> y: T like x",
    summary="x * factor where the mask is true, plus a bias.",
    types=FLOATS,
    tolerances={
        "custom": {"float32": Tolerance(rtol=1e-6, atol=1e-6), "float64": Tolerance(rtol=1e-12, atol=1e-12)},
    },
)


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


HUGE = Tolerance(rtol=0.0, atol=1e9)
IGNORES_BIAS = REFERENCE.replace("(0 if bias is None else bias)", "0")
IGNORES_FACTOR = REFERENCE.replace("np.float32(factor)", "2")
WITHOUT = (model("float32", bias=None), model("float64", bias=None))
FAULTS: dict[str, tuple[Callable[[], Operator], str, list[str]]] = {
    "an input that kernel and reference ignore": (
        lambda: OPERATOR,
        IGNORES_BIAS,
        [
            "T=float32: no case distinguishes input 'bias' from zeros, ones and nothing: with any of them in its "
            "place, the expected values of case plain_float32 change by no more than rtol=1e-06 atol=1e-06. Add a "
            "case in which its values count, tighten the tolerance, or declare Input(name='bias', ..., "
            'no_effect="why")',
        ],
    ),
    "an input that is always zeros": (
        lambda: with_inputs(bias=Values(values=(0.0,) * 5)),
        REFERENCE,
        ["T=float32: no case distinguishes input 'bias' from zeros and nothing: with any of them in its place, "],
    ),
    "a mask that is always true": (
        lambda: with_inputs(mask=Values(values=(True,) * 5)),
        REFERENCE,
        ["T=float32: no case distinguishes input 'mask' from ones: with ones in its place, the expected values of "],
    ),
    "an optional input that no case gives": (
        lambda: replace(OPERATOR, models=WITHOUT),
        REFERENCE,
        ["T=float32: no case gives input 'bias', so a kernel that ignores it passes. Add a model whose cases give it"],
    ),
    "an attribute that is always its default": (
        lambda: replace(OPERATOR, models=tuple(replace(m, attributes={}) for m in OPERATOR.models)),
        REFERENCE,
        [
            "T=float32: attribute 'factor' has its default 2.0 in case plain_float32, so a kernel, a binding or a "
            "lowering with this constant in its place passes. Add a model with another value, or declare "
            "Attribute(name='factor', ..., no_effect=\"why\")"
        ],
    ),
    "an attribute that kernel and reference ignore": (
        lambda: OPERATOR,
        IGNORES_FACTOR,
        [
            "T=float32: no case distinguishes attribute 'factor' from the value 2.0: with it, the expected values of "
            "case plain_"
        ],
    ),
    "a required attribute that they ignore": (
        lambda: with_part("attributes", 0, default=None),
        IGNORES_FACTOR,
        ["T=float32: no case distinguishes attribute 'factor' from the value 4.0: "],
    ),
    "a tolerance of 1e9, and a huge number": (
        lambda: replace(
            with_spec(tolerances={"custom": {"float32": HUGE, "float64": SPEC.tolerances["custom"]["float64"]}}),
            models=(model("float32", x=Values(values=(1.0, 2.0, 3.0, math.nan, 1e30))), model("float64")),
        ),
        REFERENCE,
        [
            "T=float32: the tolerance hides output 'y': 3 of the 4 expected numbers that are not 0 differ from 0 by no "
            "more than rtol=0 atol=1e+09 allows, in case plain_float32. A kernel that writes zeros passes there. "
            "Tighten the tolerance, or add cases with larger numbers"
        ],
    ),
    "the loosest of two lowerings": (
        lambda: with_spec(lowerings=("custom", "decomposed"), tolerances={
            "custom": SPEC.tolerances["custom"], "decomposed": {"float32": HUGE, "float64": HUGE}}),
        REFERENCE,
        ["T=float32: the tolerance hides output 'y': 5 of the 5 expected numbers"],
    ),
    "a dtype without a case": (
        lambda: replace(OPERATOR, models=OPERATOR.models[:1]),
        REFERENCE,
        ["no case has T=float64, which `types` declares. Add a model with types={'T': 'float64'}, or remove the dtype"],
    ),
    "all NaN": (
        lambda: OPERATOR,
        "def shifted(x, mask, bias, *, factor):\n    return x * float('nan')\n",
        ["T=float32: output 'y' is NaN everywhere in case plain_float32. Add a case whose expected values are numbers"],
    ),
    "all empty": (
        lambda: with_inputs(x=Random(shape=(0,)), mask=Random(shape=(0,)), bias=Random(shape=(0,))),
        REFERENCE,
        ["T=float32: output 'y' is empty in case plain_float32, so no value is compared. Add a case that gives it "],
    ),
    "empty, as the kernel decides": (
        lambda: with_part("outputs", 0, shape=FromKernel(rank=1)),
        "def shifted(x, mask, bias, *, factor):\n    return x[:0]\n",
        ["T=float32: output 'y' is empty in case plain_float32"],
    ),
    "zeros": (
        lambda: OPERATOR,
        "def shifted(x, mask, bias, *, factor):\n    return x - x\n",
        ["T=float32: output 'y' is 0 wherever it is a number in case plain_float32, so a kernel that writes zeros "],
    ),
    "a copy of an input": (
        lambda: OPERATOR,
        "def shifted(x, mask, bias, *, factor):\n    return x\n",
        [
            "T=float32: output 'y' equals input 'x' within rtol=1e-06 atol=1e-06 in case plain_float32, so a kernel "
            "that copies it passes. Add a case in which they differ, tighten the tolerance, or declare Output(name="
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_an_error(fault: str, tmp_path: Path) -> None:
    made, reference, wanted = FAULTS[fault]
    lines = run(tmp_path, made(), reference)["detail"].splitlines()
    for line in wanted:
        assert [found for found in lines if found.startswith(f"ops/shifted/cases.py: {line}")], "\n".join(lines)


def test_an_argument_that_the_reference_refuses_counts_as_told_apart(tmp_path: Path) -> None:
    """With a default that the reference rejects, and an input that may only be as it is."""
    refusing = REFERENCE.replace(
        "    if factor", "    if not x.any() or (x == 1).all():\n        raise ValueError\n    if factor"
    )
    assert problem(tmp_path, with_part("attributes", 0, default=-200.0), refusing) == ""


def test_a_reference_that_checks_an_input_and_ignores_it(tmp_path: Path) -> None:
    """Zeros and ones are refused, so another permutation of its values shows that they do not count."""
    checking = "    if bias is None or not bias.any() or (bias == 1).all():\n        raise ValueError\n    if factor"
    found = run(tmp_path, OPERATOR, IGNORES_BIAS.replace("    if factor", checking))["detail"]
    assert "no case distinguishes input 'bias' from its own values in reverse order: " in found


def test_a_finding_of_several_dtypes_is_one_line(tmp_path: Path) -> None:
    found = problem(tmp_path, OPERATOR, IGNORES_BIAS)
    assert found.startswith("T=float32: no case distinguishes input 'bias' from ")
    assert found.endswith('no_effect="why"). Also T=float64')


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


@pytest.mark.parametrize(
    ("kind", "index", "part"),
    [("inputs", 2, "input 'bias'"), ("attributes", 0, "attribute 'factor'"), ("outputs", 0, "output 'y'")],
)
def test_a_reason_that_is_not_true_is_an_error(kind: str, index: int, part: str, tmp_path: Path) -> None:
    wanted = f"{part} declares no_effect='speed', but cases of each dtype show its effect. Remove it"
    assert problem(tmp_path, with_part(kind, index, no_effect="speed")) == wanted


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
