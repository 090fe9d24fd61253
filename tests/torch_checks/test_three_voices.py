"""What a comparison of kernel, reference and vectors records; tests/faults/searched_voices.toml has faults in each. The
error that the property test allows: the change of the exact result when inputs change by one unit in the last place,
whether these changes add up or cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opmatrix.basics.errors import RegisterError
from opmatrix.data import dataset, truth, write_data
from opmatrix.data.arrays import Array
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.search.drawn import DrawnCase
from opmatrix.spec import Case, DType, FromVectors, Model, Random, Tolerance, Vectors
from opmatrix.torch_checks import register
from opmatrix.torch_checks.kernel_check import CaseCheck, check_case
from opmatrix.torch_ops.load import LoadedLibrary
from tests.support.double import DYNAMIC, SPEC
from tests.support.projects import with_reference
from tests.support.specs import declare

pytestmark = pytest.mark.torch

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
VECTORS = Case(
    name="original",
    inputs={"x": FromVectors(shape=(2, 3))},
    expected=Vectors(path="original.npz", source="paper", licence="MIT"),
)
Kernel = Callable[..., torch.Tensor]


def right(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor


def wrong(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor + (x > 0)


def problems(root: Path, kernel: Kernel, *, reference: str, vectors: Any = None, case: Case = VECTORS) -> str:
    """Write the data of one case and compare a kernel with them, as register does."""
    paths: Paths = with_reference(root, "double", f"import numpy as np\n\ndef double(x, *, factor):\n    {reference}\n")
    if vectors is not None:
        np.savez(paths.op("double") / "original.npz", x=X, y=vectors)
    operator = Operator(
        spec=SPEC, models=(replace(DYNAMIC, cases=(Case(name="a", inputs={"x": Random(shape=(2, 3))}), case)),)
    )
    write_data.run(paths, operator)
    folder = paths.data("double", "dynamic", 1)
    found = dataset.read(folder, judge=truth.read_judges(paths.data_manifest("double"))[folder])
    check = CaseCheck(spec=SPEC, model=operator.models[0], case=case, data=found, overload=kernel)
    mismatches: list[dict[str, Any]] = []
    said, result = check_case(check, mismatches)
    assert result["judged_in"] == str(found.judge)
    assert bool(mismatches) == bool(said) and all(one["differing"] and one["case"] == case.name for one in mismatches)
    return "\n".join(said)


def test_what_the_cases_that_a_kernel_computes_wrongly_have_in_common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that is wrong in one dtype, and one that refuses what is longer than 16."""
    paths: Paths = with_reference(tmp_path, "double", f"def double(x, *, factor):\n    {RIGHT}\n")
    dtypes: Sequence[DType] = ("float32", "float64")
    models = tuple(
        replace(DYNAMIC, name=dtype, types={"T": dtype}, cases=tuple(
            Case(name=f"{dtype}_{size}", inputs={"x": Random(shape=(2, size))}) for size in (1, 2, 3, 8, 16, 17, 20)
        ))
        for dtype in dtypes
    )  # fmt: skip
    operator = Operator(spec=SPEC, models=models)
    write_data.run(paths, operator)

    def message(kernel: Kernel) -> str:
        monkeypatch.setattr(register.load, "load", lambda *_: LoadedLibrary(overload=kernel, alive=None))
        with pytest.raises(RegisterError) as caught:
            register.run(paths, operator, part="kernel")
        return str(caught.value)

    def in_float64(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor + (x.dtype == torch.float64)

    def short(x: torch.Tensor, factor: float) -> torch.Tensor:
        if x.shape[1] > 16:
            raise RuntimeError("too long")
        return x * factor

    assert "\n  Over all cases: wrong where T = float64 (7 of 7 cases; right where T = float32 in 7)" in message(
        in_float64
    )
    said = message(short)
    assert "the kernel rejects it: too long" in said
    assert "Over all cases: wrong from x.shape[1] = 17 on (4 of 4 cases; right up to x.shape[1] = 16 in 10)" in said


RIGHT = "return x * factor"


@pytest.mark.parametrize(("kernel", "message"), [(right, ""), (wrong, "The kernel alone differs: ")])
def test_three_voices(tmp_path: Path, kernel: Kernel, message: str) -> None:
    found = problems(tmp_path, kernel, reference=RIGHT, vectors=X * 2)
    assert message in found and bool(message) == bool(found)


def test_a_reference_that_loses_digits_does_not_refuse_a_more_exact_kernel(tmp_path: Path) -> None:
    """The reference adds in float32."""

    def exact_sum(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.double().cumsum(-1).float()

    case = Case(name="long", inputs={"x": Random(shape=(1, 200_000), mean=1.0)})
    assert problems(tmp_path, exact_sum, reference="return np.cumsum(x, axis=-1, dtype=x.dtype)", case=case) == ""


MADE = declare(
    "made(x: float64) -> y: float64 like x",
    onnx="test::Made",
    summary="Made of one tensor.",
    tolerances={"custom": {"float64": Tolerance(rtol=1e-15, atol=0.0)}},
)
RANDOM = np.random.default_rng(0).normal(size=400)
HUGE = np.concatenate([RANDOM, [1e153, -1e153]])


def centred(x: Array) -> Array:
    return x - x.mean()


def pairs(x: Array) -> Array:
    """Return the difference to the neighbour: equal changes of both cancel."""
    return x - x.reshape(-1, 2)[:, ::-1].ravel()


def halves(x: Array) -> Array:
    """Return the difference to the element 4 places away, as in a rotation of the halves of a head."""
    return x - x.reshape(-1, 2, 4)[:, ::-1].ravel()


def problem(function: Callable[[Array], Array], x: Array, off: float) -> str:
    """Return the message for a kernel whose results are `off`."""
    import torch

    from opmatrix.torch_checks.kernel_check import KernelCheck

    def exact(given: Any, attributes: Any, *, precision: str = "") -> tuple[Array, ...]:
        return (function(given[0].astype(np.longdouble)).astype(np.float64),)

    def kernel(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(exact((x.numpy(),), {})[0] + off)

    case = Case(name="only", inputs={"x": Random(shape=x.shape)})
    one = DrawnCase(model=Model(name="only", cases=(case,)), arrays=[x], expected=exact((x,), {}), refusal="")
    judge = KernelCheck(spec=MADE, overload=kernel, reference=exact)  # type: ignore[arg-type]
    return judge.problem(one)


@pytest.mark.parametrize(
    ("function", "x", "unit"),
    [
        (centred, RANDOM, 1e-16),  # the mean changes as much as its elements do, though most changes would cancel
        (centred, HUGE, 1e134),  # two elements that cancel, but not their last places
        (pairs, RANDOM + 1e6, 1e-10),
        (halves, RANDOM + 1e6, 1e-10),
        (lambda x: 3 * x - 2.9999, np.array([1.0]), 4e-16),
    ],
    ids=["sum", "cancelled", "difference", "distant_difference", "one_number"],
)
def test_errors_that_rounding_of_the_inputs_explains(function: Callable[[Array], Array], x: Array, unit: float) -> None:
    assert problem(function, x, off=2 * unit) == ""
    assert "rounding of the inputs does not explain it" in problem(function, x, off=100 * unit)


def test_no_tolerance_makes_a_finite_result_an_infinity() -> None:
    """``rtol * inf`` would allow every finite value."""
    from opmatrix.judge.rounding import is_rounding

    expected, tolerance = np.array([np.inf, -np.inf, 1.0]), Tolerance(rtol=1e-3, atol=0.0)
    still = np.zeros(3)
    assert is_rounding(np.array([np.inf, -np.inf, 1.0005]), expected, tolerance, still)
    assert not is_rounding(np.array([1.0, -np.inf, 1.0]), expected, tolerance, still)
    assert not is_rounding(np.array([np.inf, -1e308, 1.0]), expected, tolerance, still)
    assert not is_rounding(np.array([-np.inf, -np.inf, 1.0]), expected, tolerance, still)
    assert is_rounding(np.array([1.0, -np.inf, 1.0]), expected, tolerance, np.array([np.inf, 0.0, 0.0]))
