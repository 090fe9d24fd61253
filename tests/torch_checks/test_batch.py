"""The search proves `TorchOp.batch`: a kernel that computes something of several indices is found, also where its
reference does the same."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import OpmatrixError
from opmatrix.basics.files import write_text
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.search import draw_inputs
from opmatrix.spec import Case, Model, OpSpec, Output, Random, SameAs, Tolerance, TorchOp
from tests.support.specs import declare

pytestmark = pytest.mark.torch

NEAR = Tolerance(rtol=1e-5, atol=1e-5)
SPEC = declare(
    "centred(x: float32[N, C], w: float32[C], with_sum=True) -> y: float32 like x",
    Output(name="total", type="float32", shape=SameAs(input="x", replace={1: None}), optional="with_sum"),
    torch=TorchOp(name="batch_test::centred", batch="N"),
    summary="w * x, or in addition minus the mean of each column.",
    tolerances={"custom": {"float32": NEAR}},
)
FURTHER = replace(
    SPEC,
    torch=TorchOp(name="batch_test::centred", batch="..."),
    inputs=(replace(SPEC.inputs[0], dims=("...", "C")), SPEC.inputs[1]),
    outputs=(SPEC.outputs[0], replace(SPEC.outputs[1], shape=SameAs(input="x", replace={-1: None}))),
)
MODEL = Model(name="one", cases=(Case(name="only", inputs={"x": Random(shape=(2, 3)), "w": Random(shape=(3,))}),))
REFERENCE = """\
import numpy as np


def centred(x, w, *, with_sum):
    few = np.clip(x, -9, 9)
    mean = few.mean(0) if {share} and x.ndim > 1 and x.shape[0] else 0
    with np.errstate(all="ignore"):
        return x * w - mean, few.sum(-1) if with_sum else np.zeros(0, x.dtype)
"""


def search(folder: Path, spec: OpSpec, share: int) -> str:
    """Return the message of the search, or "". `share`: kernel and reference subtract the mean of each column."""
    import torch

    from opmatrix.torch_checks import property_test
    from opmatrix.torch_ops.load import LoadedLibrary

    paths, operator = Paths(folder), Operator(spec=spec, models=(MODEL,))
    write_text(paths.reference("centred"), REFERENCE.format(share=share))
    draw_inputs.run(paths, operator)

    def kernel(x: torch.Tensor, w: torch.Tensor, with_sum: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
        few = x.clip(-9, 9)
        mean = few.mean(0) if share and x.dim() > 1 and x.shape[0] else 0
        return x * w - mean, few.sum(-1) if with_sum else x.new_empty(0)

    library = torch.library.Library("batch_test", "DEF")
    library.define("centred(Tensor x, Tensor w, bool with_sum=True) -> (Tensor, Tensor)")
    library.impl("centred", kernel, "CPU")
    loaded: Any = LoadedLibrary(overload=torch.ops.batch_test.centred.default, alive=None)
    try:
        property_test.run(paths, operator, loaded)
    except OpmatrixError as error:
        return str(error)
    finally:
        library._destroy()
    return ""


@pytest.fixture(scope="module")
def process() -> Iterator[ProcessPoolExecutor]:
    """A process of its own: the search forks, which a process in which OpenMP has threads cannot do."""
    with ProcessPoolExecutor(max_workers=1, mp_context=multiprocessing.get_context("spawn")) as executor:
        yield executor


@pytest.mark.parametrize("spec", [SPEC, FURTHER], ids=["named", "further"])
def test_a_kernel_that_computes_each_index_alone_passes(
    tmp_path: Path, spec: OpSpec, process: ProcessPoolExecutor
) -> None:
    assert process.submit(search, tmp_path, spec, 0).result() == ""


@pytest.mark.parametrize("spec", [SPEC, FURTHER], ids=["named", "further"])
def test_a_kernel_that_mixes_indices_is_found(tmp_path: Path, spec: OpSpec, process: ProcessPoolExecutor) -> None:
    message = process.submit(search, tmp_path, spec, 1).result()
    assert spec.torch
    assert f"batch={spec.torch.batch!r} of TorchOp is wrong: y at index 0 differs" in message
    assert "The smallest that hypothesis found: " in message
