"""What a comparison of kernel, reference and vectors records; tests/faults/searched_voices.toml has faults in each."""

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
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, DType, FromVectors, Random, Vectors
from opmatrix.torch_checks import register
from opmatrix.torch_checks.kernel_check import CaseCheck, check_case
from opmatrix.torch_ops.load import LoadedLibrary
from tests.support.double import DYNAMIC, SPEC
from tests.support.projects import with_reference

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
