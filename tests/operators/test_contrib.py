"""ONNX Runtime's own operators: dtypes that torch lacks and singular matrices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from opmatrix.basics.errors import DataError
from opmatrix.basics.version import minor
from opmatrix.codegen import python_modules
from opmatrix.data import write_data
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.export import write_node_models
from opmatrix.ort_checks import verify
from opmatrix.ort_checks.sessions import OrtSessions, call
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records import verdict
from opmatrix.spec import Case, Model, Random, Tolerance, Values

pytestmark = pytest.mark.ort

CELL = Cell(torch=None, exporter="node", opset=18, ort=minor(installed().onnxruntime))


def by_hand(operator: Operator, *cases: Case, dtype: str, rtol: float) -> Operator:
    """Return the operator without torch, with one model of one dtype."""
    spec = replace(
        operator.spec,
        torch=None,
        types={"T": (dtype,)},  # type: ignore[dict-item]
        tolerances={"custom": {dtype: Tolerance(rtol=rtol, atol=rtol)}},  # type: ignore[dict-item]
    )
    return Operator(spec=spec, models=(Model(name="by_hand", types={"T": dtype}, cases=cases),))  # type: ignore[dict-item]


def prepared(root: Path, folder: Path, operator: Operator) -> Paths:
    """Write data and models of an operator in a project of its own."""
    paths, name = Paths(folder), operator.name
    paths.op(name).mkdir(parents=True)
    paths.reference(name).write_bytes(Paths(root).reference(name).read_bytes())
    paths.generated(name).mkdir(parents=True)
    for file, text in python_modules.render(operator.spec).items():
        (paths.generated(name) / file).write_text(text)
    write_data.run(paths, operator)
    write_node_models.run(paths, operator, lowering="custom", cell=CELL)
    return paths


def test_an_inverse_in_float16(root: Path, tmp_path: Path) -> None:
    """On the CPU, torch has no inverse in float16."""
    near_one = Values(values=((1.5, 0.25, 0.0), (0.0, 2.0, 0.5), (-0.25, 0.0, 1.0)))
    case = Case(name="plain_float16", inputs={"x": near_one})
    operator = by_hand(load_operator(Paths(root), "inverse"), case, dtype="float16", rtol=2e-3)
    paths = prepared(root, tmp_path, operator)
    verify.run(paths, operator, lowering="custom", cell=CELL)
    assert verdict.read(paths.verdict("inverse", "custom", CELL)).outcome == "verified"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("singular", [np.zeros((3, 3)), np.ones((3, 3)), np.diag([1.0, 2.0, 0.0])])
def test_a_singular_matrix_in_onnx_runtime(
    root: Path, tmp_path: Path, dtype: str, singular: NDArray[np.float64]
) -> None:
    """No error, and no finite result."""
    case = Case(name="traced", inputs={"x": Random(shape=(3, 3))})
    operator = by_hand(load_operator(Paths(root), "inverse"), case, dtype=dtype, rtol=1e-3)
    paths = prepared(root, tmp_path, operator)
    model = paths.model("inverse", "custom", CELL, "by_hand").read_bytes()
    for session in OrtSessions(None).sessions(model).values():
        (y,) = call(session, {"x": singular.astype(dtype)})
        assert not np.isfinite(y).all()


@pytest.mark.torch
def test_a_singular_matrix_in_torch() -> None:
    import torch

    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(3, 3))


def test_no_case_holds_a_singular_matrix(root: Path, tmp_path: Path) -> None:
    case = Case(name="singular", inputs={"x": Values(values=((1.0, 1.0), (1.0, 1.0)))})
    operator = by_hand(load_operator(Paths(root), "inverse"), case, dtype="float64", rtol=1e-12)
    with pytest.raises(DataError, match=r"case 'singular': .*ZeroDivisionError: a matrix is singular"):
        prepared(root, tmp_path, operator)
