"""`doit check` on the command line: handmade models and torch functions, with faults planted in models and kernels."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from opmatrix.declaration.load import Operator, load_operator
from opmatrix.engine.lock import hold
from opmatrix.errors import CompileError
from opmatrix.model_check import run_model
from opmatrix.model_check.default_tolerances import tolerances
from opmatrix.project.paths import Paths
from opmatrix.stages import link_together
from tests.support.forked import forked
from tests.support.projects import Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.ort, pytest.mark.slow]

OPERATORS = ("group_norm", "inverse", "custom_op_one", "custom_op_two")
KERNELS = ("group_norm", "custom_op_one", "custom_op_two")
F = TensorProto.FLOAT


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project in which everything that a model needs is built."""
    made = Project.copy(tmp_path_factory.mktemp("check"), operators=OPERATORS, seconds=20)
    done = made.doit("codegen", "compile")
    assert done.returncode == 0, done.stdout + done.stderr
    return made


def norm(x: str, y: str, **more: Any) -> NodeProto:
    attributes = {"domain": "mydomain", "epsilon": 1e-5} | more
    return helper.make_node("mygroupnorm", [x, "groups", "scale", "bias"], [y], name=f"norm_{y}", **attributes)


def one(x: str, y: str) -> NodeProto:
    return helper.make_node("CustomOpOne", [x, x], [y], name=f"one_{y}", domain="test.customop")


def two(x: str, y: str) -> NodeProto:
    return helper.make_node("CustomOpTwo", [x], [y], name=f"two_{y}", domain="test.customop")


def plain(op_type: str, x: str, y: str) -> NodeProto:
    return helper.make_node(op_type, [x], [y], name=f"{op_type}_{y}")


def model(*nodes: NodeProto, opset: int = 18, ir: int = 8) -> ModelProto:
    """Return a model from x to y."""
    x, y = (helper.make_tensor_value_info(n, F, ["N", 4, "L"]) for n in "xy")
    numbers = {"groups": [2.0], "scale": [1.0] * 4, "bias": [0.5] * 4}
    constants = [numpy_helper.from_array(np.array(v, np.float32), name) for name, v in numbers.items()]
    imports = {"": opset, "mydomain": 1, "test.customop": 1}
    return helper.make_model(
        helper.make_graph(nodes, "graph", [x], [y], constants),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in imports.items()],
        ir_version=ir,
    )


def checked(project: Project, what: ModelProto | str, *options: str) -> tuple[int, str]:
    """Return the exit code and the whole output; stderr comes last."""
    name = what if isinstance(what, str) else "model.onnx"
    if isinstance(what, ModelProto):
        onnx.save(what, project.root / name)
    done = project.doit("check", name, *options, NO_COLOR="1", PYTHONIOENCODING="utf-8")
    return done.returncode, done.stdout + done.stderr


PAGE = Path(__file__).parents[2] / "docs/check.md"


def bare(text: str) -> list[str]:
    """Return lines without what differs between machines: milliseconds, and abbreviated paths."""
    return re.sub(r"[\d.e+-]+ ms|-[0-9a-f]{8}\b", "", text).splitlines()


def shown(command: str) -> list[str]:
    """Return the output of a command in docs/check.md."""
    _, found, rest = PAGE.read_text().partition(f"```console\n$ ./run doit check {command}\n{command}\n")
    assert found, command
    return bare(f"{command}\n" + rest.partition("```")[0])


def wrong(text: str) -> list[str]:
    """Return the questions with wrong answers."""
    return [line[4:].partition("  ")[0] for line in text.splitlines() if line.startswith("  ✗")]


def test_a_model_of_several_domains_without_faults_passes(project: Project) -> None:
    """Both operators of test.customop share a domain, which a session takes from one library."""
    nodes = norm("x", "a"), one("a", "b"), two("b", "c"), plain("Relu", "c", "y")
    code, text = checked(project, model(*nodes), "--ort", "1.18")
    assert code == 0, text
    assert "libgroup_norm_ort.so" in text and "libcustom_op_one+custom_op_two_ort.so" in text
    assert "opset 18, IR version 8: ONNX Runtime 1.18 reads them" in text
    assert "inputs drawn, N = 2, L = 3: x float32[2, 4, 3]" in text
    assert "node by node: 4 nodes" in text
    assert text.splitlines()[-1] == "OK: 7 passed, 1 note"  # there is no environment of 1.18


def test_faults_are_reported_by_question(project: Project) -> None:
    code, text = checked(
        project, model(norm("x", "a", epsilom=1.0), plain("Relu", "a", "y"), opset=25, ir=13), "--ort=1.18"
    )
    assert code == 1
    assert wrong(text) == ["nodes", "versions", "versions"]
    assert "it has no attribute 'epsilom'; declared: epsilon. Did you mean 'epsilon'?" in text


def test_an_operator_that_cannot_be_used_is_a_note(project: Project) -> None:
    broken = project.layout.spec("broken")
    broken.parent.mkdir()
    broken.write_text("raise SystemExit")
    try:
        code, text = checked(project, model(norm("x", "a"), plain("Relu", "a", "y")))
    finally:
        shutil.rmtree(broken.parent)
    assert code == 0, text
    assert "the operator 'broken' is not considered, because its files cannot be used: python -m" in text


def test_a_model_that_onnx_runtime_refuses(project: Project) -> None:
    bad = model(norm("x", "a"), plain("Relu", "a", "y"))
    bad.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.ones(4), "scale"))
    code, text = checked(project, bad)
    assert code == 1
    assert wrong(text) == ["types and shapes", "runs"]
    assert "scale has inconsistent type tensor(double)" in text
    assert "no kernel of mygroupnorm takes inputs of these dtypes together" in text


def test_inputs_of_the_user(project: Project) -> None:
    np.savez(project.root / "in.npz", x=np.zeros((1, 4, 7), np.float32))
    code, text = checked(project, model(norm("x", "y")), "--inputs", "in.npz")
    assert code == 0, text
    assert "inputs from in.npz: x float32[1, 4, 7]" in text
    np.savez(project.root / "in.npz", x=np.zeros((1, 5, 7), np.float32))
    code, text = checked(project, model(norm("x", "y")), "--inputs", "in.npz")
    assert code == 2
    assert "'x' is float32[1, 5, 7], the model takes float32[N, 4, L]" in text.splitlines()[-1]


def test_generated_inputs_that_are_refused_have_a_remedy(project: Project) -> None:
    """The model reshapes by an input, whose valid values cannot be derived."""
    made = model(helper.make_node("Reshape", ["x", "s"], ["y"], name="again"))
    made.graph.input.append(helper.make_tensor_value_info("s", TensorProto.INT64, [5]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", F, None))
    code, text = checked(project, made)
    assert code == 1
    assert "They were drawn: give their shapes with --shape, or inputs that it can compute with: --inputs FILE" in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none.onnx", "there is no file 'none.onnx'"),
        ("text.onnx", "text.onnx: no ONNX model"),
        ("empty.onnx", "empty.onnx: no ONNX model, or one without a node"),
    ],
)
def test_a_file_that_is_no_model_is_refused_in_one_sentence(project: Project, name: str, words: str) -> None:
    (project.root / "text.onnx").write_text("hello")
    (project.root / "empty.onnx").write_text("")
    code, text = checked(project, name)
    assert code == 2
    assert words in text.splitlines()[-1]
    assert "Traceback" not in text


CHAIN = norm("x", "a"), one("a", "b"), two("b", "c"), norm("c", "d"), plain("Relu", "d", "y")


@pytest.fixture
def kernel(project: Project, request: pytest.FixtureRequest) -> Project:
    """Replace a line of a kernel during a test: request.param is operator, old text, new text."""
    operator, old, new = request.param
    path = f"native/{operator}/kernel.h"
    before = (project.root / path).read_text()
    request.addfinalizer(lambda: restore(project, operator, before))
    project.replace(path, old, new)
    for function, header in (("sched_yield", "sched.h"), ("_Exit", "cstdlib")):
        if function in new:
            project.replace(path, "#pragma once", f"#pragma once\n#include <{header}>")
    built(project, operator)
    return project


def built(project: Project, operator: str) -> None:
    done: subprocess.CompletedProcess[str] = project.doit(f"compile:{operator}")
    assert done.returncode == 0, done.stdout + done.stderr


def restore(project: Project, operator: str, text: str) -> None:
    (project.root / f"native/{operator}/kernel.h").write_text(text)
    built(project, operator)


ROUNDED = "rounded(x.data[i])"
BEFORE = "[&] {{ {}; return rounded(x.data[i]); }}()"


@pytest.mark.parametrize(
    "kernel", [("custom_op_one", "add(x.data[i], y.data[i])", "add(x.data[i], y.data[i]) + (i == 5)")], indirect=True
)
def test_a_wrong_kernel_in_the_middle_of_a_chain_is_named(kernel: Project) -> None:
    """Nodes after it have wrong results as well, but compute rightly from wrong inputs."""
    code, text = checked(kernel, model(*CHAIN))
    assert code == 1
    assert wrong(text) == ["first node"]
    assert bare(text.replace("model.onnx\n", "chain.onnx\n", 1).replace("check/model-", "check/chain-")) == shown(
        "chain.onnx"
    )
    (line,) = (line for line in text.splitlines() if "first node" in line)
    assert "test.customop::CustomOpOne 'one_b': 1 of 24 elements differs beyond rtol=0.0001 atol=1e-05" in line
    assert "first at (0, 1, 2), judged in float64. Its inputs: a float32[2, 4, 3] in -" in line
    assert "further" not in line
    assert "Kernel and ops/custom_op_one/reference.py differ" in line
    alone = line.rpartition("It alone: doit check ")[2]
    code, text = checked(kernel, alone)
    assert code == 1
    assert "1 nodes, custom: 1 test.customop::CustomOpOne" in text or "1 node, custom" in text
    assert wrong(text) == ["agrees", "first node"]


@pytest.mark.parametrize(
    "kernel", [("custom_op_two", ROUNDED, BEFORE.format("if (i == 3) __builtin_trap()"))], indirect=True
)
def test_a_crash_is_a_finding(kernel: Project) -> None:
    code, text = checked(kernel, model(*CHAIN))
    assert code == 1
    assert wrong(text) == ["runs"]
    assert "the process died of SIGILL" in text
    assert "Replay: python -m opmatrix check-run" in text


@pytest.mark.parametrize(
    "kernel", [("custom_op_two", ROUNDED, BEFORE.format("if (i == 3) std::_Exit(0)"))], indirect=True
)
def test_a_kernel_that_ends_the_process_with_0_is_a_finding(kernel: Project) -> None:
    code, text = checked(kernel, model(*CHAIN))
    assert code == 1
    assert wrong(text) == ["runs"]
    assert "the process ended with exit code 0 before it was done" in text


@pytest.mark.parametrize(
    "kernel", [("custom_op_two", ROUNDED, BEFORE.format("while (i == 3) sched_yield()"))], indirect=True
)
def test_a_hang_is_a_finding(kernel: Project) -> None:
    with edited(kernel.root / "pyproject.toml", "seconds = 20", "seconds = 4"):
        code, text = checked(kernel, model(*CHAIN))
    assert code == 1
    assert wrong(text) == ["runs"]
    assert "the process did not end within 4 s and was stopped" in text


def test_a_fault_of_an_optimization_is_named() -> None:
    right, off = np.float32([[1, 2]]), np.float32([[1, 2.5]])
    made = model(plain("Relu", "x", "y"))
    answers = {"optimised": [off], "not optimised": [right]}
    for found in (
        *run_model.compare_with_expected(made, answers, {"y": right}, tolerances(None, None), of="torch"),
        *run_model.compare_settings(made, answers, tolerances(None, None)),
    ):
        assert found.mark == "wrong"
        assert "worst at (0, 1): expected 2.0, got 2.5" in found.text
        assert found.remedy.startswith("An optimisation of ONNX Runtime changes the result")
    (found,) = run_model.compare_with_expected(
        made, answers | {"optimised": [right]}, {"y": right}, tolerances(None, None), of="torch"
    )
    assert found.mark == "ok"


def test_an_output_of_another_shape_or_dtype_is_reported() -> None:
    made, want = model(plain("Relu", "x", "y")), np.float32([[1, 2]])
    for got, words in (
        (np.float64([[1, 2]]), "dtype is float64"),
        (np.float32([1, 2]), "shape is (2,)"),
        ([], "a list"),
    ):
        answers = {"optimised": [got], "not optimised": [got]}
        (found,) = run_model.compare_with_expected(
            made,
            answers,  # type: ignore[arg-type]  # a list is no array, and this is what it reports
            {"y": want},
            tolerances(None, None),
            of="torch",
        )
        assert found.mark == "wrong"
        assert words in found.text


EXPORT_CRASH = """
import os
import torch

class Fragile(torch.nn.Module):
    def forward(self, x):
        if torch.onnx.is_in_onnx_export() and not torch.compiler.is_exporting():
            os.abort()
        return torch.relu(x)

def build():
    return Fragile(), (torch.zeros(2),)
"""


@pytest.mark.torch
def test_an_exporter_that_dies_does_not_stop_the_other(project: Project) -> None:
    (project.root / "fragile.py").write_text(EXPORT_CRASH)
    code, text = checked(project, "fragile:build")
    assert code == 1
    assert wrong(text) == ["export"]
    assert "while the legacy exporter ran: died of SIGABRT" in text
    assert text.count("gives the module Fragile") == 1
    assert "with torch 2.13: 1 output" in text.partition("torch2.13-dynamo-opset18")[2]


def test_too_much_memory_is_a_finding(project: Project) -> None:
    """A tensor of 1.2 GB, which takes longer to fill than the time between two looks at the memory."""
    count = helper.make_node("Constant", [], ["count"], value_ints=[300_000_000])
    filled = helper.make_node("ConstantOfShape", ["count"], ["filled"])
    mean = helper.make_node("ReduceMean", ["filled"], ["mean"], keepdims=0)
    added = helper.make_node("Add", ["normal", "mean"], ["y"])
    with edited(project.root / "pyproject.toml", "megabytes = 8000", "megabytes = 600"):
        code, text = checked(project, model(norm("x", "normal"), count, filled, mean, added))
    assert code == 1 and wrong(text) == ["runs"], text
    assert "the process took more than 600 MB of memory and was stopped" in text


def test_expected_outputs_next_to_the_model_are_compared(project: Project) -> None:
    from opmatrix.testdata import onnx_dataset

    folder = project.root / "given"
    made = model(one("x", "y"))
    x = np.arange(12, dtype=np.float32).reshape(1, 4, 3)
    folder.mkdir(exist_ok=True)
    onnx.save(made, folder / "model.onnx")
    onnx_dataset.write(folder / "test_data_set_0", onnx_dataset.DataSet(inputs={"x": x}, outputs={"y": x + x}))
    code, text = checked(project, "given/model.onnx")
    assert code == 0, text
    assert "with test_data_set_0: 1 output within rtol=0.0001 atol=1e-05, 0% of the limit used up" in text
    other = x + x
    other[0, 2, 1] += 0.5
    onnx_dataset.write(folder / "test_data_set_0", onnx_dataset.DataSet(inputs={"x": x}, outputs={"y": other}))
    code, text = checked(project, "given/model.onnx")
    assert code == 1
    assert wrong(text) == ["agrees", "first node"]
    assert "worst at (0, 2, 1): expected 14.5, got 14.0, first at (0, 2, 1)" in text
    assert "CustomOpOne 'one_y', the only one, computes what its reference does with the same numbers" in text
    assert checked(project, "given/model.onnx", "--rtol", "0.1")[0] == 0


FUNCTION = """
import torch

class Chain(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 6)

    def forward(self, x, m):
        norm = torch.ops.mynamespace.custom_group_norm(
            self.linear(x), torch.tensor([2.0]), torch.full((4,), 1.5), torch.zeros(4), 1e-5)
        return torch.relu(norm), torch.linalg.inv(m)

def build():
    torch.manual_seed(3)
    inputs = torch.randn(2, 4, 6), 4 * torch.eye(3) + torch.rand(3, 3)
    return Chain(), inputs, {"dynamic": {"x": ("N", None, None)}, "output_names": ["normed", "inverse"]}

def raises():
    return torch.zeros(2) @ torch.zeros(3)

def number():
    return 3

def no_module():
    return Chain, (torch.zeros(1),)

def no_tensors():
    return Chain(), (torch.zeros(1), 2.0)

def surplus():
    return Chain(), torch.zeros(1), {"dynamics": {}}

def bad_call():
    return Chain(), (torch.zeros(1),)

def unknown():
    class Unknown(torch.nn.Module):
        def forward(self, x):
            return torch.ops.mynamespace.custom_groupnorm(x)
    return Unknown(), (torch.zeros(1),)
"""


PLANTED_LOWERING = """

def custom(g, x, num_groups, scale, bias, eps):
    doubled = g.op("Add", scale, scale)
    return g.op("mydomain::mygroupnorm", x, num_groups, doubled, bias, epsilon_f=eps)
"""


@pytest.fixture(scope="module")
def function(project: Project) -> str:
    (project.root / "chain.py").write_text(FUNCTION)
    return "chain.py"


@pytest.mark.torch
def test_a_torch_function_with_two_custom_operators_agrees_through_both_exporters(
    project: Project, function: str
) -> None:
    code, text = checked(project, f"{function}:build")
    assert code == 0, text
    for exporter in ("legacy", "dynamo"):
        assert f"torch2.13-{exporter}-opset18" in text
    own = "custom: 1 com.microsoft::Inverse (ops/inverse), 1 mydomain::mygroupnorm (ops/group_norm)"
    assert text.count(own) == 2
    assert text.count("with torch 2.13: 2 outputs within rtol=0.0001 atol=1e-05") == 2
    assert text.count("normed float32[N, 4, 6], inverse float32[3, 3]") == 2


@pytest.mark.torch
def test_a_missing_torch_library_has_the_command_that_builds_it(project: Project, function: str) -> None:
    path = project.layout.torch_library("group_norm")
    kept = path.read_bytes()
    path.unlink()
    try:
        code, text = checked(project, f"{function}:build")
    finally:
        path.write_bytes(kept)
    assert code == 2
    assert "the module raised AttributeError" in text
    assert "libgroup_norm_torch.so is missing" in text.splitlines()[-1]
    assert "python -m opmatrix compile group_norm" in text.splitlines()[-1]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "raises() raised RuntimeError: inconsistent tensor size"),
        ("bad_call", "the module raised TypeError: Chain.forward() missing 1 required positional argument: 'm'"),
        ("unknown", "has no attribute 'custom_groupnorm'"),
    ],
)
def test_a_function_that_builds_no_model_is_one_sentence(
    project: Project, function: str, name: str, words: str
) -> None:
    code, text = checked(project, f"{function}:{name}")
    assert code == 2, text
    assert words in text.splitlines()[-1]
    assert "Traceback" not in text


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("number", "number() returned a int; return (module, inputs), or (module, inputs, options)"),
        ("no_module", "returned a type as the module, which must be a torch.nn.Module"),
        ("no_tensors", "returned a float among the inputs, which must be a tuple of tensors"),
        ("surplus", "the option 'dynamics', allowed: input_names, output_names, dynamic; did you mean 'dynamic'?"),
        ("biuld", "chain.py: no function 'biuld', there is: build, raises"),
    ],
)
def test_a_function_that_returns_no_model_is_one_sentence(
    project: Project, function: str, name: str, words: str, torch: Any, tmp_path: Path
) -> None:
    """As above, without a process per case, each of which would import torch."""
    from opmatrix.model_check.user_model import build

    def run() -> None:
        build(f"{function}:{name}", project.root)

    said = forked(run, tmp_path / "log")
    assert words in said and "\n" not in said


@pytest.mark.torch
@pytest.mark.parametrize(
    "kernel", [("group_norm", "const double factor = rate *", "const double factor = 1.01 * rate *")], indirect=True
)
def test_a_kernel_that_is_wrong_in_both_frameworks_is_named(kernel: Project, function: str) -> None:
    """Both libraries have the same kernel, so torch and ONNX Runtime agree; only the reference differs."""
    code, text = checked(kernel, f"{function}:build", "--exporter", "dynamo")
    assert code == 1
    assert "with torch 2.13: 2 outputs within" in text
    assert wrong(text) == ["first node"]
    assert "mydomain::mygroupnorm 'n" in text
    assert "Kernel and ops/group_norm/reference.py differ" in text


@pytest.mark.torch
@pytest.mark.parametrize(
    "kernel",
    [("group_norm", "const double factor = rate *", "if (count > 0) __builtin_trap();\nconst double factor = rate *")],
    indirect=True,
)
def test_a_crash_in_torch_is_a_finding(kernel: Project, function: str) -> None:
    code, text = checked(kernel, f"{function}:build")
    assert code == 1
    assert wrong(text) == ["torch"]
    assert "while the model ran in torch 2.13: died of SIGILL" in text
    assert "Replay: python -m opmatrix check-capture chain.py:build" in text


@pytest.mark.torch
def test_a_wrong_lowering_and_a_wrong_kernel_are_distinguished(project: Project, function: str) -> None:
    """Here each node computes its declared result, and the model differs from torch's."""
    path = project.root / "ops/group_norm/lowering.py"
    before = path.read_text()
    path.write_text(before + PLANTED_LOWERING)
    try:
        code, text = checked(project, f"{function}:build", "--exporter", "legacy")
    finally:
        path.write_text(before)
    assert code == 1
    assert wrong(text) == ["agrees", "first node"]
    assert "not with torch 2.13: output 'normed': " in text
    assert "So the model itself is another one (its exporter, a lowering)" in text


def operators(project: Project, *names: str) -> list[Operator]:
    return [load_operator(project.layout, name) for name in names]


def test_a_combined_library_has_equal_bytes_and_no_path_of_the_project(project: Project) -> None:
    def made() -> bytes:
        return link_together.run(
            project.layout, operators(project, "custom_op_one", "custom_op_two", "group_norm")
        ).read_bytes()

    first = made()
    shutil.rmtree(project.layout.combined_folder(["custom_op_one", "custom_op_two", "group_norm"]))
    assert made() == first
    assert str(project.root).encode() not in first


def test_a_library_that_cannot_be_linked_is_refused(project: Project) -> None:
    with pytest.raises(CompileError, match="inverse has no objects: its kernel is ONNX Runtime's own"):
        link_together.run(project.layout, operators(project, "inverse"))
    (by_hand,) = (
        replace(o, handwritten_files=o.handwritten_files | {"ort.cc"}) for o in operators(project, "group_norm")
    )
    with pytest.raises(CompileError, match=r"native/group_norm/ort\.cc has a RegisterCustomOps of its own"):
        link_together.run(project.layout, [by_hand])
    elsewhere = Paths(project.root, debug=True)
    with pytest.raises(CompileError, match=r"kernel.o is missing. Run: doit compile:group_norm"):
        link_together.run(elsewhere, operators(project, "group_norm"))


def test_a_missing_library_has_the_command_that_builds_it(project: Project) -> None:
    path = project.layout.ort_library("group_norm")
    kept = path.read_bytes()
    path.unlink()
    try:
        code, text = checked(project, model(norm("x", "y")))
    finally:
        path.write_bytes(kept)
    assert code == 1
    assert wrong(text) == ["libraries"]
    assert "libgroup_norm_ort.so is missing. Build it: doit compile:group_norm" in text


def test_a_library_of_somebody_else_is_run_without_a_project(project: Project, tmp_path: Path) -> None:
    """Outside the project its operator is unknown, and its library one of somebody else."""
    onnx.save(model(norm("x", "a"), plain("Relu", "a", "y")), tmp_path / "model.onnx")
    program = "import sys; from opmatrix.commands.main import main; sys.exit(main())"
    library = str(project.layout.ort_library("group_norm"))
    command = [sys.executable, "-c", program, "check", "model.onnx", "--library", library]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "libgroup_norm_ort.so must have 1 mydomain::mygroupnorm; they are run and not judged" in done.stdout
    assert "✓ runs" in done.stdout and "node by node: 1 node" in done.stdout
    assert "1 node without a reference" in done.stdout


def test_check_is_refused_during_another_run(project: Project) -> None:
    onnx.save(model(norm("x", "y")), project.root / "model.onnx")
    with hold(project.layout.lock):
        done = project.doit("check", "model.onnx")
    assert done.returncode == 2
    assert "another run is at work in" in done.stderr


def test_help_names_the_options(project: Project) -> None:
    done = project.doit("help", "check")
    assert done.returncode == 0
    assert "check MODEL.onnx... | MODULE:FUNCTION | PATH/TO/FILE.py:FUNCTION" in " ".join(done.stdout.split())
