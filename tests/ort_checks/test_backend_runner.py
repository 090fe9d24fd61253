"""onnx's own backend test runner accepts the files that verify writes, and comes to the same verdicts."""

from __future__ import annotations

import shutil
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from opmatrix.data import dataset
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.ort_checks import cast_edges
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells
from opmatrix.signature.signature import has_function_body
from tests.support.backend_runner import Folder, folders, run

LAYOUT = Paths(Path(__file__).parents[2])
OPERATORS = load_operators(LAYOUT)

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    """Build this checkout, as a user would."""
    done = subprocess.run([sys.executable, "-m", "doit"], cwd=LAYOUT.root, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def of(operator: Operator) -> list[Folder]:
    return [
        folder
        for lowering in operator.spec.lowerings
        for cell in operator.cells(chosen_cells(LAYOUT))
        for folder in folders(LAYOUT, operator, lowering, cell)
    ]


def problems(result: unittest.TestResult) -> str:
    return "\n".join(text for _, text in [*result.failures, *result.errors])


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_every_folder_passes_and_none_is_skipped(operator: Operator) -> None:
    chosen = of(operator)
    result = run(chosen)
    assert result.wasSuccessful(), problems(result)
    assert (result.testsRun, result.skipped) == (len(chosen), [])


def test_a_planted_wrong_output_fails(tmp_path: Path) -> None:
    folder = of(next(o for o in OPERATORS if o.name == "custom_op_one"))[0]
    shutil.copytree(folder.path, tmp_path / "copy")
    planted = Folder(name=folder.name, path=tmp_path / "copy", library=folder.library, rtol=0.0, atol=0.0)
    assert run([planted]).wasSuccessful()
    path = planted.path / "test_data_set_0" / "output_0.pb"
    tensor = onnx.TensorProto.FromString(path.read_bytes())
    path.write_bytes(numpy_helper.from_array(numpy_helper.to_array(tensor) + 1, tensor.name).SerializeToString())
    result = run([planted])
    assert (result.testsRun, len(result.failures)) == (1, 1)
    assert "Not equal to tolerance" in problems(result)


def test_without_the_library_no_test_passes() -> None:
    folder = of(next(o for o in OPERATORS if o.name == "custom_op_one"))[0]
    result = run([Folder(name=folder.name, path=folder.path, library=None, rtol=0.0, atol=0.0)])
    assert not result.wasSuccessful() and not result.skipped
    assert "CustomOpOne" in problems(result)


BODIES = [
    (operator, cell)
    for operator in OPERATORS
    if has_function_body(operator.spec)
    for cell in operator.cells(chosen_cells(LAYOUT))
]


@pytest.mark.parametrize(("operator", "cell"), BODIES, ids=lambda v: getattr(v, "name", str(v)))
def test_a_function_body_runs_without_the_library_and_the_reference(operator: Operator, cell: Cell) -> None:
    """In plain ONNX Runtime and in onnx's reference evaluator, with the expected outputs."""
    tolerances = operator.spec.tolerances["decomposed"]
    for model in operator.at("decomposed", cell.opset).models:
        if model.unsupported:
            continue
        proto = onnx.load(LAYOUT.function_model(operator.name, cell, model.name))
        assert (
            [n.domain for n in proto.graph.node] == [operator.spec.onnx.domain] == [f.domain for f in proto.functions]
        )
        content = proto.SerializeToString()
        plain: Any = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        if cast_edges.needs_casts(plain):
            edged = cast_edges.with_float_edges(content, plain)
            cast = onnxruntime.InferenceSession(edged, providers=["CPUExecutionProvider"])
            plain = cast_edges.CastSession(plain, cast=cast)
        for index, case in enumerate(model.cases):
            found = dataset.read(LAYOUT.data(operator.name, model.name, index))
            for session in (plain, ReferenceEvaluator(proto)):
                with np.errstate(all="ignore"):  # NaN and infinities follow IEEE 754
                    (y,) = session.run(None, dict(found.inputs))
                (expected,) = found.outputs.values()
                limit = tolerances[expected.dtype.name]
                assert y.dtype == expected.dtype
                y, expected = (a if a.dtype.itemsize > 2 else a.astype(np.float32) for a in (y, expected))
                np.testing.assert_allclose(
                    y, expected, rtol=limit.rtol, atol=limit.atol, err_msg=case.name, strict=True
                )
