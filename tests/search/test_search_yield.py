"""A search that proves little is weak, and says why and what to do; large inputs are few and within limits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opmatrix.basics import interrupts as limits
from opmatrix.basics.files import write_text
from opmatrix.basics.interrupts import TooSlow, cpu_limit, memory_limit
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import read_check
from opmatrix.search import draw_inputs
from opmatrix.search import drawn as drawn_cases
from opmatrix.search.coverage import measure
from opmatrix.search.drawn import Drawn
from opmatrix.spec import Case, Model, Random, TorchOp
from tests.support.specs import FLOATS, attribute, declare

SPEC = declare(
    "scaled(x: T[N, M], w: T[M]?) -> y: T like x",
    attribute("power=1", minimum=0, maximum=20),
    onnx="test::Scaled",
    summary="A factor per column.",
    types=FLOATS,
)
CASE = Case(name="only", inputs={"x": Random(shape=(2, 3)), "w": Random(shape=(3,))})
OPERATOR = Operator(spec=SPEC, models=(Model(name="one", types={"T": "float32"}, cases=(CASE,)),))
RIGHT = "return x if w is None else x * w"


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count only the CPU time that a reference takes by `takes`: how fast a machine computes must not matter."""

    @contextmanager
    def limit(seconds: float) -> Iterator[None]:
        with monkeypatch.context() as patched:
            patched.setattr(limits._Now, "seconds", seconds)
            yield

    monkeypatch.setattr(limits._Now, "elsewhere", 0.0)
    monkeypatch.setattr(draw_inputs, "cpu_limit", limit)
    monkeypatch.setattr(draw_inputs, "cpu_time", lambda: limits._Now.elsewhere)


def takes(seconds: float) -> None:
    """Let a reference take CPU time of the fake clock, and be stopped at its limit."""
    limit, _ = limits.in_force()
    limits.spend(seconds if limit is None else min(seconds, limit))
    if limit is not None and seconds > limit:
        raise TooSlow


def drawn(paths: Paths, body: str, operator: Operator = OPERATOR) -> Drawn:
    write_text(
        paths.reference("scaled"),
        "import numpy as np\nfrom tests.search.test_search_yield import takes\n\n\n"
        f"def scaled(x, w, *, power):\n    with np.errstate(all='ignore'):\n        {body}\n",
    )
    draw_inputs.run(paths, operator)
    return drawn_cases.read_all(paths.drawn_inputs("scaled"), "scaled")


def test_a_search_that_is_not_weak(tmp_path: Path) -> None:
    found = measure(OPERATOR, drawn(Paths(tmp_path), RIGHT))
    assert found["weak"] == [] and found["refused"] == 0 and found["new_shapes"] >= 30
    assert found["attributes"]["power"] >= 8 and found["absent"]["w"] > 10
    assert {*found["dtypes"]} == {"float32", "float64"}
    assert len(found["large"]) == 4 and max(found["large"]) > 200_000 and min(found["large"]) >= 10_000


WEAK = {
    "refused": (
        "if x.shape[0] != 2 * x.shape[1]: raise ValueError(f'{x.shape[0]} rows')\n        return x",
        r"the reference rejects \d+ of \d+ random inputs \(\d+%\), more than 50%\. The most frequent reason "
        r"\(\d+ times\): ops/scaled/reference.py:\.\.\.: ValueError: \.\.\. rows\. Declare what it requires: ",
    ),
    "shapes": (
        "if x.shape[0] > 2: raise ValueError('too many')\n        return x",
        r"\d+ shapes? of accepted inputs that no case has, fewer than 30\. .* Declare what ties the sizes",
    ),
    "attribute": (
        "if power > 2: raise ValueError('too much')\n        return x",
        r"attribute 'power': 2 values that no case has, fewer than 8\. Widen minimum, maximum or allowed",
    ),
}


@pytest.mark.parametrize("why", WEAK)
def test_a_weak_search(why: str, tmp_path: Path) -> None:
    body, expected = WEAK[why]
    operator = OPERATOR
    if why == "shapes":  # of which there are few
        parts = tuple(replace(part, dims=("N", 3) if part.name == "x" else (3,)) for part in SPEC.inputs)
        operator = replace(OPERATOR, spec=replace(SPEC, inputs=(parts[0], replace(parts[1], optional=False))))

    found = measure(operator, drawn(Paths(tmp_path), body, operator))["weak"]
    assert any(re.search(expected, message) for message in found), found


def test_an_elementwise_operator_needs_inputs_with_four_or_five_axes(tmp_path: Path) -> None:
    for dims, shape in ((("...",), (2,)), (("N", "M", 1, 1), (2, 3, 1, 1))):
        x, w = SPEC.inputs
        spec = replace(SPEC, inputs=(replace(x, dims=dims), replace(w, dims=None, same_as="x", optional=False)))
        case = Case(name="only", inputs={"x": Random(shape=shape), "w": Random(shape=shape)})
        models = (Model(name="one", types={"T": "float32"}, cases=(case,)),)
        operator = Operator(spec=replace(spec, elementwise=True), models=models)
        found = drawn(Paths(tmp_path), RIGHT, operator)
        weak = [why for why in measure(operator, found)["weak"] if "elementwise" in why]
        shapes = {(*one.model.types.values(), one.arrays[0].shape) for one in found.cases}
        if dims == ("...",):
            assert weak == []
            for dtype in ("float32", "float64"):
                assert {(dtype, (2, 3, 4, 5)), (dtype, (2, 3, 2, 4, 5))} <= shapes
        else:
            (why,) = weak
            assert "no random input has four or five axes with several channels and several pixels, so that" in why


def test_a_slow_reference_has_no_large_inputs(tmp_path: Path) -> None:
    """Of a reference whose time grows with the square, the largest inputs are dropped, and counted."""
    found = measure(OPERATOR, drawn(Paths(tmp_path), "takes(x.size**2 * 1e-9); return x"))
    assert found["dropped"] and max(found["large"], default=0) < 100_000


def test_a_large_input_has_only_its_seed_in_the_file(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [one for one in drawn(paths, RIGHT).cases if one.large]
    outputs = sum(output.nbytes for one in found for output in one.expected or ())
    inputs = sum(array.nbytes for one in found for array in one.arrays)
    assert paths.drawn_inputs("scaled").stat().st_size < outputs + inputs / 2
    for one in found:
        assert one.expected is not None and one.expected[0].shape == one.arrays[0].shape
        if one.model.cases[0].inputs["w"] is None:
            assert np.array_equal(one.expected[0], one.arrays[0], equal_nan=True)


def test_slow_values_of_an_attribute_take_a_limited_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a reference with power as a number of loops, most inputs are tried, and the record has the values left out."""
    monkeypatch.setattr(draw_inputs, "SECONDS", 1.0)
    found = measure(OPERATOR, drawn(Paths(tmp_path), "takes(1.0 if power > 15 else 0.0); return x"))
    assert found["dropped"]["too slow in the reference"] >= 10 and found["examples"] > 150
    assert {*found["not_tried"]} == {"power"} and {*found["not_tried"]["power"]} <= {16, 17, 18, 19, 20}
    assert not any("too slow" in message for message in found["weak"])


def test_a_reference_that_needs_much_memory_refuses_nothing(tmp_path: Path) -> None:
    found = measure(OPERATOR, drawn(Paths(tmp_path), "np.zeros((power // 20, 10**12)); return x"))
    assert found["refused"] == 0 and found["not_tried"] == {"power": [20]}


def test_a_search_with_few_inputs_in_time_is_weak() -> None:
    slow = Model(name="slow", types={"T": "float32"}, cases=(CASE,))
    (message, *_) = measure(OPERATOR, Drawn(cases=[], dropped={}, too_slow=[slow] * 3))["weak"]
    assert message.startswith(
        "the reference is too slow for 3 of 3 random inputs (100%), more than 50%. Declare a lower"
    )


def test_the_limit_of_memory() -> None:
    with pytest.raises(MemoryError), memory_limit(10):
        np.ones(1 << 24)
    assert np.ones(1 << 24).size == 1 << 24


def test_the_limit_of_cpu_time() -> None:
    with pytest.raises(TooSlow), cpu_limit(0.02):
        while True:
            pass
    with cpu_limit(0.02):
        pass


def test_what_is_drawn_for_onnx_runtime_alone_has_a_record(tmp_path: Path) -> None:
    """torch's search has a record of its own."""
    paths = Paths(tmp_path)
    drawn(paths, WEAK["attribute"][0])
    record = read_check(paths.drawn_record("scaled"))
    assert record.outcome == "verified" and record.results[0]["refused"] > 0
    assert "attribute 'power': 2 values" in record.weak[0]
    with_torch = replace(OPERATOR, spec=replace(SPEC, torch=TorchOp(name="my::scaled")))
    paths.drawn_record("scaled").unlink()
    drawn(paths, RIGHT, with_torch)
    assert not paths.drawn_record("scaled").exists()
