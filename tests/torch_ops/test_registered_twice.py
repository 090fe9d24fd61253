"""A second registration has a message, and nothing stays registered: in torch, in its exporters, in ONNX Runtime."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.basics.files import write_text
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from tests.support.building import build, copy_project
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

LEGACY = Cell(torch="2.13", exporter="legacy", opset=20, ort="1.31")
DYNAMO = Cell(torch="2.13", exporter="dynamo", opset=20, ort="1.31")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """The libraries of two operators of one domain, of one that uses both, and of one with another domain."""
    names = ("custom_op_one", "custom_op_two", "add_and_round", "dual_residual")
    paths = copy_project(tmp_path_factory.mktemp("registration"), *names)
    for name in names:
        build(paths, name)
    return paths


SESSION = """
import json, sys
import numpy as np, onnxruntime as ort
from onnx import helper
node = helper.make_node("CustomOpTwo", ["x"], ["y"], domain="test.customop")
x, y = helper.make_tensor_value_info("x", 1, ["N"]), helper.make_empty_tensor_value_info("y")
imports = [helper.make_opsetid("", 17), helper.make_opsetid("test.customop", 1)]
model = helper.make_model(helper.make_graph([node], "g", [x], [y]), opset_imports=imports, ir_version=8)
for libraries in json.loads(sys.argv[1]):
    try:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        for library in libraries:
            options.register_custom_ops_library(library)
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        again = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        for one in (session, again):
            assert one.run(None, {"x": np.array([0.5, 1.5], np.float32)})[0].tolist() == [0, 2]
        print(json.dumps(""))
    except Exception as error:
        print(json.dumps(str(error)))
"""


def sessions(*libraries: list[Path]) -> list[str]:
    """Return the message of each session, or "" if it computes; one process makes all, and must not end."""
    given = json.dumps([[*map(str, some)] for some in libraries])
    done = subprocess.run([sys.executable, "-c", SESSION, given], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [*map(json.loads, done.stdout.splitlines())]


def test_a_domain_that_a_session_gets_twice(paths: Paths, tmp_path: Path) -> None:
    one, two, both, other = map(paths.ort_library, ("custom_op_one", "custom_op_two", "add_and_round", "dual_residual"))
    copy = tmp_path / "another_name.so"
    shutil.copy(two, copy)
    wrong = ([two, two], [two, one], [two, both], [both, two], [copy, two], [other, two, other])
    right = ([two], [two, other], [both, other])  # afterwards nothing of the refused libraries is left
    *refused, first, second, third = sessions(*wrong, *right)
    assert [first, second, third] == ["", "", ""]
    expected = [
        ("custom_op_two", "test.customop", "custom_op_two"),
        ("custom_op_one", "test.customop", "custom_op_two"),
        ("custom_op_one, custom_op_two", "test.customop", "custom_op_two"),
        ("custom_op_two", "test.customop", "custom_op_one, custom_op_two"),
        ("custom_op_two", "test.customop", "custom_op_two"),
        ("dual_residual", "rknn_cst", "dual_residual"),
    ]
    for text, (second_one, domain, first_one) in zip(refused, expected, strict=True):
        says = f"the library of {second_one} adds the domain {domain} to a session that has it from the library of "
        assert f"opmatrix: {says}{first_one}. ONNX Runtime takes a domain once: register each library once" in text


def test_messages_of_onnx_runtime_for_third_party_libraries() -> None:
    from opmatrix.ort_checks.sessions import explain

    assert explain("[ONNXRuntimeError] : 1 : FAIL : Domain already set in registry") == (
        "the session was given two libraries that add one domain, or one library twice. Register each once, and give "
        "the operators of one domain one library"
    )


TORCH = """
import ctypes, sys, torch
for path in sys.argv[1:]:
    torch.ops.load_library(path)
    error = ctypes.CDLL(path).opmatrix_error
    error.restype = ctypes.c_char_p
    print(error().decode().splitlines()[:1])
assert torch.ops.cst.dual_residual(torch.ones(2), torch.ones(2), 3.0)[0].tolist() == [2, 2]
"""


def test_a_torch_library_that_is_loaded_twice(paths: Paths, tmp_path: Path) -> None:
    library, copy = paths.torch_library("dual_residual"), tmp_path / "another_name.so"
    shutil.copy(library, copy)
    command = [sys.executable, "-c", TORCH, *map(str, (library, library, copy, library))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, again, other, last = done.stdout.splitlines()
    assert first == again == last == "[]"
    assert "dual_residual: torch could not define it; is another library with this operator loaded, or this" in other


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """A project that a test may edit, with the Python part of the generated code."""
    names = ("gelu", "dual_residual", "add_and_round", "custom_op_one", "custom_op_two")
    project = Project.copy(tmp_path / "project", operators=names)
    for name in names:
        for file, text in python_modules.render(load_operator(project.paths, name).spec).items():
            write_text(project.paths.generated(name) / file, text)
    return project


def export(project: Project, name: str, *cells: Cell) -> None:
    from opmatrix.export import write_models as export

    for cell in cells:
        export.run(project.paths, load_operator(project.paths, name), lowering="custom", cell=cell)


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    from opmatrix.export import exporters

    exporters.warm_up()


@pytest.mark.parametrize("name", ["gelu", "dual_residual", "add_and_round"])
def test_nothing_stays_registered(name: str, made: Project) -> None:
    """Two exports in one process, with other operators between them, give the results of a single export."""

    def run() -> None:
        from torch.onnx._internal.torchscript_exporter.registration import registry

        others = [n for n in ("gelu", "dual_residual", "add_and_round") if n != name]
        export(made, name, LEGACY, DYNAMO)
        written = [*made.paths.build.glob("export/**/model.onnx")]
        before = {path: path.read_bytes() for path in written}
        export(made, others[0], LEGACY, DYNAMO)
        export(made, others[1], LEGACY, DYNAMO)
        export(made, name, LEGACY, DYNAMO)
        assert before and {path: path.read_bytes() for path in written} == before
        group = registry.get_function_group("aten::gelu")
        assert not group._functions.overridden(20) and group.get(20).__module__.startswith("torch.onnx")
        assert not registry.is_registered_op("cst::dual_residual", 20)

    assert forked(run, made.root / "output") == ""
