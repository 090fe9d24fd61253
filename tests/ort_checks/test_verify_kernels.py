"""Faults of a kernel that only the search of verify finds. tests/faults/differ.toml plants those that cases show.
verify with a library that is no build of opmatrix. tests/faults/existing_verify.toml plants faults in another.
Outputs that may have the memory of an input, `may_inplace`: ONNX Runtime gives them that memory, and verify finds a
kernel that then computes something else.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from opmatrix.basics.errors import VerifyError
from opmatrix.basics.version import minor
from opmatrix.codegen import write_code
from opmatrix.data import dataset, write_data
from opmatrix.data.arrays import Array
from opmatrix.data.dataset import DataSet
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.export import write_node_models
from opmatrix.ort_checks import save_case, verify
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records import verdict
from opmatrix.records.verdict import Verdict
from opmatrix.search import draw_inputs
from opmatrix.spec import Attribute, Case, Model, Random, Values
from opmatrix.toolchain import compile
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ort_headers import INCLUDED
from tests.support import double
from tests.support.building import with_native
from tests.support.double import exported
from tests.support.projects import ROOT
from tests.support.specs import declare, outputs
from tests.support.taken_away import replayed

pytestmark = [pytest.mark.compile, pytest.mark.ort]

CELL = Cell(torch=None, exporter="node", opset=18, ort=minor(installed().onnxruntime))
DIFFER = Paths(ROOT / "tests/projects/differ")
KERNEL, REFERENCE = DIFFER.kernel("differ").read_text(), DIFFER.reference("differ").read_text()
RIGHT = load_operator(DIFFER, "differ")


def operator(kernel: str) -> Operator:
    return replace(RIGHT, spec=replace(RIGHT.spec, kernel=kernel))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """Return a project with all files but the kernel."""
    paths = with_native(tmp_path_factory.mktemp("differ"), "differ", REFERENCE)
    draw_inputs.run(paths, operator(KERNEL))
    return paths


@pytest.fixture
def tried(paths: Paths) -> Callable[[str], tuple[Verdict, str]]:
    """Return a function from a kernel to its verdict and the message of verify."""

    def tried(kernel: str) -> tuple[Verdict, str]:
        gc.collect()  # a session that is still alive would keep the library of the kernel before, of the same path
        made = operator(kernel)
        write_code.run(paths, made)
        compile.run(paths, made)
        write_data.run(paths, made)
        write_node_models.run(paths, made, lowering="custom", cell=CELL)
        message = ""
        try:
            verify.run(paths, made, lowering="custom", cell=CELL)
        except VerifyError as error:
            message = str(error)
        return verdict.read(paths.verdict("differ", "custom", CELL)), message

    return tried


def test_the_right_kernel_is_verified(tried: Callable[[str], tuple[Verdict, str]]) -> None:
    found, message = tried(KERNEL)
    assert (found.outcome, message) == ("verified", "")


@pytest.mark.parametrize(
    ("new", "message", "elsewhere"),
    [
        ("if (x.size(1) == 7 && x.numel() > 0) first.data[0] += 1;", "first: 1 of ", "first: 1 of "),
        (
            'KERNEL_CHECK(x.size(1) != 7, "differ: seven");',
            "the kernel rejects what the reference computes: Non-zero status code returned while running Differ node",
            "differ: seven",
        ),
        (
            "if (x.size(1) == 7 && x.numel() > 0) const_cast<T*>(x.data)[0] = 77;",
            "the kernel writes into its input",
            "",
        ),
        (
            "static int runs; if (x.size(1) == 7 && x.numel() > 0) first.data[0] += runs++ % 2;",
            "the second run gives other numbers than the first: first: ",
            "first: a second run gives 1 other values",
        ),
    ],
    ids=["value", "refuses", "input", "second_run"],
)
def test_the_search_finds_a_fault_that_no_case_shows(
    tried: Callable[[str], tuple[Verdict, str]], paths: Paths, new: str, message: str, elsewhere: str, tmp_path: Path
) -> None:
    """No case has seven columns. The message has a small input, whose name `--case` takes; it fails `elsewhere` too."""
    kernel = KERNEL.replace("// after", new)
    found, said = tried(kernel)
    assert [c.case for c in found.cases if c.outcome != "verified"] == ["drawn_inputs"]
    assert re.search(rf"differ-found_\w+ in ONNX Runtime: {re.escape(message)}", said), said
    shown = re.search(r"The smallest of the random inputs that fail: .* adopt-case differ (found_\w+)", said, re.DOTALL)
    assert shown, said
    made = operator(kernel)
    with pytest.raises(VerifyError, match=re.escape(message)):
        verify.run(paths, made, lowering="custom", cell=CELL, case=shown[1])
    path = paths.mismatches(paths.verdict("differ", "custom", CELL))
    records = json.loads(path.read_text())["mismatches"] if path.exists() else []
    if message.startswith(("first", "the second run")):
        assert [(one["case"], one["drawn"], one["output"]) for one in records] == [("drawn_inputs", shown[1], "first")]
        assert records[0]["differing"] == 1 and records[0]["maps"] and "Mismatched elements: 1 / " in said
    for case in (shown[1], "drawn_inputs") if records else (shown[1],):
        save_case.run(paths, made, lowering=None, cells=[CELL], case=case, into=tmp_path / case)
        done = replayed(tmp_path / case)
        assert elsewhere in done.stdout and done.returncode == (1 if elsewhere else 0), done.stdout + done.stderr


OPERATOR = replace(double.OPERATOR, handwritten_files=frozenset({"ort.cc"}))  # SOURCE, which may infer no shape
SOURCE = Path(__file__).with_name("double_ort.cc")


@pytest.fixture
def library_paths(tmp_path: Path) -> Paths:
    return exported(tmp_path, OPERATOR, "custom")


@pytest.fixture
def library(library_paths: Paths) -> Path:
    """Compile the library."""
    return build(library_paths)


def build(library_paths: Paths, *further: str) -> Path:
    library = library_paths.ort_library("double")
    library.parent.mkdir(parents=True, exist_ok=True)
    flags = ["-std=c++17", "-fPIC", "-shared", "-Wno-unused-result", f"-I{INCLUDED}", *further]
    subprocess.run([*find_toolchain(os.environ).compiler, *flags, str(SOURCE), "-o", str(library)], check=True)
    return library


def run(library_paths: Paths) -> None:
    verify.run(library_paths, OPERATOR, lowering="custom", cell=double.CELL)


def refused(library_paths: Paths) -> str:
    with pytest.raises(VerifyError) as caught:
        run(library_paths)
    assert verdict.read(library_paths.verdict("double", "custom", double.CELL)).outcome == "failed"
    return str(caught.value)


def test_the_right_library_is_verified(library_paths: Paths, library: Path) -> None:
    factor = Attribute(name="factor", kind="float", default=2.0, allowed=(2.0,))
    only = replace(OPERATOR.spec, types={"T": ("float32",)}, attributes=(factor,))  # which is all that the kernel has
    draw_inputs.run(library_paths, replace(OPERATOR, spec=only))
    run(library_paths)
    assert verdict.read(library_paths.verdict("double", "custom", double.CELL)).outcome == "verified"


def test_a_published_model_that_fails_has_data_and_can_be_taken_away(
    library_paths: Paths, library: Path, tmp_path: Path
) -> None:
    shutil.copytree(library_paths.data("double", "dynamic", 0), library_paths.published_data("double", 1))
    shutil.copyfile(
        library_paths.model("double", "custom", double.CELL, "dynamic"), library_paths.published_model("double", 1)
    )
    kept = dataset.read(library_paths.published_data("double", 1))
    wrong = kept.outputs["Y"] + np.array([0, 0, 1], np.float32)
    dataset.write(library_paths.published_data("double", 1), DataSet(inputs=kept.inputs, outputs={"Y": wrong}))
    published = replace(OPERATOR, published=(1,))
    with pytest.raises(VerifyError, match="a model of version 1 runs no more"):
        verify.run(library_paths, published, lowering="custom", cell=double.CELL)
    records = json.loads(library_paths.mismatches(library_paths.verdict("double", "custom", double.CELL)).read_text())[
        "mismatches"
    ]
    assert [(one["case"], one["differing"], one["elements"]) for one in records] == [("published_1", 2, 6)]
    save_case.run(
        library_paths, published, lowering=None, cells=[double.CELL], case="published_1", into=tmp_path / "saved"
    )
    done = replayed(tmp_path / "saved")
    assert done.returncode == 1 and "Y: 2 of 6 elements differ" in done.stdout, done.stdout + done.stderr
    assert "the model of version 1" in (tmp_path / "saved-elsewhere/README.txt").read_text()


def test_a_library_of_another_kind(library_paths: Paths) -> None:
    """As torch's library of the operator."""
    build(library_paths, "-DRegisterCustomOps=SomethingElse")
    assert "exports no RegisterCustomOps, so it is not a custom-op library of ONNX Runtime" in refused(library_paths)


def test_a_missing_and_a_damaged_library(library_paths: Paths, library: Path) -> None:
    library.unlink()
    assert "is missing. Run: python -m opmatrix compile double" in refused(library_paths)
    library.write_bytes(b"\x7fELF")
    message = refused(library_paths)
    assert "cannot be loaded: " in message
    assert "Build it again: python -m opmatrix compile double" in message


LAG = declare(
    "lag(x: T, by: T[]) -> before: T like by",
    *outputs("y: T like x", may_inplace="x"),
    summary="Move each element to the next place.",
    types={"T": ("float32", "bfloat16")},
)
WRITTEN_REFERENCE = """\
import numpy as np

def lag(x, by):
    return by, np.concatenate([by.reshape(1), x.reshape(-1)])[: x.size].reshape(x.shape)
"""
WRITTEN_KERNEL = """\
#pragma once
#include "opmatrix/half.h"
#include "opmatrix/tensor_view.h"

namespace opmatrix::lag {
template <typename T>
void lag(TensorView<const T> x, TensorView<const T> by, TensorView<T> before, TensorView<T> y) {
  before.data[0] = by.data[0];
  T last = by.data[0];
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const T now = x.data[i];
    y.data[i] = last;
    last = now;
  }
}
}  // namespace opmatrix::lag
"""


def models(dtype: str) -> tuple[Model, ...]:
    cases = tuple(
        Case(name=name, inputs={"x": Random(shape=shape, mean=2.0), "by": Values(values=3.0)})
        for name, shape in (("one", (1, 1)), ("rows", (3, 5)), ("empty", (0, 4)))
    )
    return (Model(name="only", types={"T": dtype}, dynamic={"x": ("N", "C")}, cases=cases),)  # type: ignore[dict-item]  # a dtype


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_kernel_that_keeps_the_promise(dtype: str, tmp_path: Path) -> None:
    """tests/faults/differ.toml has kernels that do not."""
    paths = with_native(tmp_path, "lag", WRITTEN_REFERENCE)
    operator = Operator(spec=replace(LAG, kernel=WRITTEN_KERNEL), models=models(dtype))
    for stage in (draw_inputs, write_code, compile, write_data):
        stage.run(paths, operator)
    write_node_models.run(paths, operator, lowering="custom", cell=CELL)
    verify.run(paths, operator, lowering="custom", cell=CELL)
    assert verdict.read(paths.verdict("lag", "custom", CELL)).outcome == "verified"


SEEN = declare(
    "seen(x: float32, z: int64) -> same: int64[2]",
    *outputs("w: int64 like z", may_inplace="z"),
    *outputs("y: float32 like x", may_inplace="x"),
    summary="Copy x, and say whether the copy has its memory.",
    kernel="""\
#pragma once
#include "opmatrix/tensor_view.h"

namespace opmatrix::seen {
inline void seen(TensorView<const float> x, TensorView<const std::int64_t> z, TensorView<std::int64_t> same,
                 TensorView<std::int64_t> w, TensorView<float> y) {
  for (std::int64_t i = 0; i < x.numel(); ++i) y.data[i] = x.data[i];
  for (std::int64_t i = 0; i < z.numel(); ++i) w.data[i] = z.data[i];
  same.data[0] = x.data == y.data;
  same.data[1] = z.data == w.data;
}
}  // namespace opmatrix::seen
""",
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = with_native(tmp_path_factory.mktemp("seen"), "seen", "def seen(x, z): ...\n")
    write_code.run(paths, Operator(spec=SEEN, models=()))
    compile.run(paths, Operator(spec=SEEN, models=()))
    return paths.ort_library("seen")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(True, ["y", "y"], [1, 1]), (False, ["y", "y"], [0, 0]), (True, ["x", "y"], [0, 1]), (True, [], [0, 1])],
    ids=["between nodes", "inputs of the model", "x is read again", "y is an output of the model"],
)
@pytest.mark.parametrize("size", [8, "N"])
def test_onnx_runtime_gives_both_the_same_memory(
    size: int | str, before: bool, after: list[str], expected: list[int], seen: Path
) -> None:
    """Between nodes, where no other node reads the input, also with a size that only a run knows."""
    values = {"x": TensorProto.FLOAT, "z": TensorProto.INT64}
    inputs = [helper.make_tensor_value_info(f"{n}_in", dtype, [size]) for n, dtype in values.items()]
    nodes = [helper.make_node("Neg", [f"{n}_in"], [n]) for n in values] if before else []
    taken = list(values) if before else [f"{n}_in" for n in values]
    nodes.append(helper.make_node("Seen", taken, ["same", "w", "y"], domain="test.domain"))
    nodes.append(helper.make_node("Neg", ["w"], ["w_out"]))
    nodes += [helper.make_node("Add", after, ["sum"])] if after else []
    outputs = [helper.make_tensor_value_info("same", TensorProto.INT64, [2])]
    outputs += [helper.make_tensor_value_info("w_out", TensorProto.INT64, [size])]
    outputs += [helper.make_tensor_value_info("sum" if after else "y", TensorProto.FLOAT, [size])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("test.domain", 1)]
    model = helper.make_model(helper.make_graph(nodes, "seen", inputs, outputs), opset_imports=opsets, ir_version=8)
    (session,) = OrtSessions(seen).sessions(model.SerializeToString(), settings=["optimised"]).values()
    fed: dict[str, Array] = {"x_in": np.arange(8, dtype=np.float32), "z_in": np.arange(8)}
    same, _, result = session.run(None, fed)
    assert same.tolist() == expected
    assert np.array_equal(result, fed["x_in"] * (-1 if before else 1) * (2 if after else 1))
