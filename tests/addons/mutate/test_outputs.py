"""How far the outputs of a survivor are from those of the kernel, which a file of NumPy keeps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opmatrix.addons.mutate import outputs
from opmatrix.data.arrays import Array, numpy_dtype
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.projects import ROOT

pytestmark = pytest.mark.torch


def compared(folder: Path, dtype: str, actual: list[Array], known: list[Array]) -> dict[str, object]:
    operator = load_operator(Paths(ROOT), "group_norm")
    model = next(m for m in operator.models if m.types["T"] == dtype)
    file = folder / "outputs.npz"
    np.savez(file, allow_pickle=False, **{f"one {index}": array for index, array in enumerate(known)})
    with np.load(file) as kept:
        return outputs._compared(operator, "one", model, actual, kept)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_outputs_of_each_dtype_are_compared(tmp_path: Path, dtype: str) -> None:
    y = np.array([[1.0, -2.5, 0.0]]).astype(numpy_dtype(dtype))  # type: ignore[arg-type]  # of a parameter
    assert compared(tmp_path, dtype, [y], [y]) == {"case": "one", "equal": True, "tolerance_used": 0.0, "problem": ""}
    other = y.copy()
    other[0, 0] = 1.5
    found = compared(tmp_path, dtype, [other], [y])
    assert not found["equal"] and not found["problem"] and 10 < float(str(found["tolerance_used"])) < outputs.DIFFERENT


def test_what_no_number_tells_is_described(tmp_path: Path) -> None:
    y = np.ones((1, 3), numpy_dtype("bfloat16"))
    assert compared(tmp_path, "bfloat16", [], [y])["problem"] == "refused by one of the two"
    assert compared(tmp_path, "bfloat16", [y], [y[0]])["problem"] == "shape is (1, 3), expected (3,)"
    assert compared(tmp_path, "bfloat16", [np.full_like(y, np.nan)], [y])["problem"] == "nan instead of 1"
