"""The gradient of group_norm passes, and each kind of fault in a formula is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.declaration.load import load_operator
from opmatrix.ort_checks import save_case
from opmatrix.search import drawn as drawn_cases
from tests.support.forked import forked
from tests.support.projects import Project
from tests.support.taken_away import replayed

pytestmark = pytest.mark.torch

FORMULA = "ops/group_norm/torch_op.py"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with few models and without outputs: the formula needs no library."""
    project = Project.copy(tmp_path / "project")
    few(project, 'static("float64"), flat("float64"), half("float16"), half("bfloat16")')
    drawn_cases.write(project.paths.drawn_inputs("group_norm"), [])
    return project


def few(project: Project, models: str) -> None:
    cases = project.paths.cases("group_norm")
    cases.write_text(cases.read_text() + f"\nMODELS = (SEED, {models})\n")


def register(project: Project) -> str:
    """Return the message of the error that the gradient part raises, or ""."""

    def run() -> None:
        from opmatrix.torch_checks import register

        register.run(project.paths, load_operator(project.paths, "group_norm"), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: gradcheck needs it

    return forked(run, project.root / "output")


def test_a_right_formula_passes_without_output(project: Project) -> None:
    assert register(project) == ""
    assert (project.root / "output").read_text() == ""
    results = json.loads(project.paths.register_manifest("group_norm", "gradient", torch="2.13").read_text())["results"]
    checks = {(r.get("case"), r["check"]) for r in results}
    assert {("sliced_float64", "gradcheck"), ("expanded_float64", "gradcheck")} <= checks
    assert ("flat_float64", "gradgradcheck") in checks
    assert "nan_float64" not in {r.get("case") for r in results}  # a NaN has no derivative


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("- z * mean(inner * z)", "", "gradcheck says: Jacobian mismatch for output 0 with respect to input 0"),
        ("(outer * z).sum((0, 2))", "outer.sum((0, 2))", "Jacobian mismatch for output 0 with respect to input 1"),
        ("centred * rate", "(centred * rate).detach()", "torch.autograd.gradgradcheck says: Jacobian mismatch"),
        ("(outer * z).sum((0, 2)).to(own)", "None", "gives no gradient for 'scale'. Give one, or name it in"),
        ('("num_groups",)', '("num_groups", "bias")', "gives a gradient for 'bias', which WITHOUT_GRADIENT names"),
        ('("num_groups",)', '("group",)', "WITHOUT_GRADIENT names 'group', allowed: x, num_groups, scale, bias"),
        ("outer.sum((0, 2)).to(own), None", "outer.sum(0).to(own), None", "backward() raises RuntimeError: "),
        ("outer = grad", "outer = grid", "backward() raises NameError: name 'grid' is not defined"),
        ("import torch\n", "import torch\n1 / 0\n", "torch_op.py:6: ZeroDivisionError: division by zero"),
        ("def setup_context", "def set_up", "ops/group_norm/torch_op.py: no function setup_context()"),
    ],
)  # fmt: skip
def test_a_wrong_formula_is_named(old: str, new: str, expected: str, project: Project) -> None:
    project.replace(FORMULA, old, new)
    few(project, 'flat("float64")')
    message = register(project)
    assert expected in message
    assert FORMULA in message
    (record,) = measured(project) or [None]
    assert (record is not None) == ("Jacobian" in expected), "a gradient that is missing has no numbers"
    if record and "gradgradcheck" in expected:
        assert record["expected_is"] == "numerical Jacobian" and not record["saved"] and record["differing"]


def measured(project: Project) -> list[dict[str, Any]]:
    """Return what the report has of a failing check."""
    paths = project.paths
    path = paths.mismatches(paths.register_manifest("group_norm", "gradient", torch="2.13"))
    found: list[dict[str, Any]] = json.loads(path.read_text())["mismatches"] if path.exists() else []
    return found


def test_a_wrong_gradient_has_data_and_replays_in_torch_alone(project: Project, tmp_path: Path) -> None:
    """The record has the gradient of the input by its axes. The folder's formula, corrected there, gives the expected
    one."""
    right = (project.root / FORMULA).read_text()
    project.replace(FORMULA, "- z * mean(inner * z)", "")
    few(project, 'flat("float64")')
    assert "gradcheck says: Jacobian mismatch for output 0 with respect to input 0" in register(project)
    (record,) = measured(project)
    assert (record["case"], record["output"], record["saved"]) == ("gradient_flat_float64", "gradient of x", True)
    assert record["expected_is"] == "numerical derivative of the reference" and record["actual_is"] == "backward()"
    assert record["differing"] > 2 and record["maps"] and record["inputs"][0]["name"] == "x"
    operator = load_operator(project.paths, "group_norm")
    save_case.run(project.paths, operator, lowering=None, cells=[], case=record["case"], into=tmp_path / "saved")
    done = replayed(tmp_path / "saved")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"gradient of x: {record['differing']} of {record['elements']} elements differ" in done.stdout
    again = (tmp_path / "saved-elsewhere").rename(tmp_path / "corrected")
    (again / "torch_op.py").write_text(right)
    done = replayed(again)
    assert done.returncode == 0 and "gradient of x: 0 of " in done.stdout, done.stdout + done.stderr
    with pytest.raises(UsageError, match="no gradient 'gradient_x' that differs; it has gradient_flat_float64"):
        save_case.run(project.paths, operator, lowering=None, cells=[], case="gradient_x")


def test_a_formula_without_a_case_that_checks_it_is_refused(project: Project) -> None:
    path = project.paths.cases("group_norm")
    few(project, "")
    path.write_text(path.read_text().replace("shape=(3, 2, 1, 2)", "shape=(3, 2, 1, 200)"))
    expected = "group_norm: no case to check its gradient with. Add one to cases.py that is finite, and has at most 256"
    assert expected in register(project)


def test_cases_of_float32_are_checked_in_float64(project: Project) -> None:
    few(project, 'static("float32")')
    assert register(project) == ""


def test_without_drawn_inputs_the_message_names_the_command(project: Project) -> None:
    project.paths.drawn_inputs("group_norm").unlink()
    assert "Run: python -m opmatrix draw-inputs group_norm" in register(project)


def test_drawn_inputs_are_samples_with_moderate_values(project: Project) -> None:
    """Shapes, attributes and numbers of groups that no case has; two thirds of them are accepted."""

    def draw() -> None:
        from opmatrix.search import draw_inputs

        draw_inputs.run(project.paths, load_operator(project.paths, "group_norm"))

    assert forked(draw, project.root / "output") == ""
    assert register(project) == ""
    data = json.loads(project.paths.register_manifest("group_norm", "gradient", torch="2.13").read_text())
    (covered,) = [r for r in data["results"] if r["check"] == "samples"]
    assert covered["samples"] > 50
    assert covered["inputs"] == ["bias", "scale", "x"]


PLAIN = """
def setup_context(ctx, inputs, output):
    pass

def backward(ctx, grad):
    return 2 * grad
"""


@pytest.fixture
def in_python(tmp_path: Path) -> Project:
    """A project with an operator defined in Python, changed to add without rounding: it has a derivative."""
    project = Project.copy(tmp_path / "project", operators=("add_and_round", "custom_op_one", "custom_op_two"))
    project.replace("ops/add_and_round/reference.py", "np.rint(x + x)", "x + x")
    project.replace("ops/add_and_round/torch_op.py", "torch.round(x + x)", "x + x")
    drawn_cases.write(project.paths.drawn_inputs("add_and_round"), [])
    return project


def prove(project: Project, part: Literal["schema", "gradient"]) -> str:
    """Return the message of the error that a part raises for add_and_round, or ""."""

    def run() -> None:
        from opmatrix.codegen import write_code
        from opmatrix.torch_checks import register

        for name in ("add_and_round", "custom_op_one", "custom_op_two"):
            write_code.run(project.paths, load_operator(project.paths, name))
        register.run(project.paths, load_operator(project.paths, "add_and_round"), part=part)

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: the schema part's exporters too

    import opmatrix.torch_checks.opcheck  # noqa: F401

    return forked(run, project.root / "output")


def written(project: Project) -> list[dict[str, str]]:
    data = json.loads(project.paths.register_manifest("add_and_round", "gradient", torch="2.13").read_text())
    results: list[dict[str, str]] = data["results"]
    return results


def test_an_operator_in_python_without_a_formula_passes(in_python: Project) -> None:
    assert prove(in_python, "gradient") == ""
    assert written(in_python) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("2 * grad", "2 * grad", ""),
        (
            "2 * grad",
            "3 * grad",
            "torch.autograd.gradcheck says: Jacobian mismatch for output 0 with respect to input 0",
        ),
        ("return 2 * grad", "return None", "it gives no gradient for 'x'"),
    ],
)
def test_the_formula_of_an_operator_in_python_is_checked(in_python: Project, old: str, new: str, expected: str) -> None:
    path = in_python.paths.torch_op("add_and_round")
    path.write_text(path.read_text() + PLAIN.replace(old, new))
    message = prove(in_python, "gradient")
    if expected:
        assert "add_and_round-" in message and expected in message and "ops/add_and_round/torch_op.py" in message
        assert len(message) < 700, "no matrices"
    else:
        assert message == ""
        assert {"gradcheck", "gradgradcheck", "samples"} == {r["check"] for r in written(in_python)}
        assert prove(in_python, "schema") == "", "opcheck proves that the operator uses the formula"


def test_the_message_has_the_elements_that_differ_and_the_log_the_matrices(project: Project) -> None:
    project.replace(FORMULA, "- z * mean(inner * z)", "")
    few(project, 'flat("float64")')
    message = register(project)
    differ = r"input 0 \('x'\): \d+ of \d+ elements differ, by \[element of the input, of the output\]: \[\d"
    assert re.search(differ, message)
    assert re.search(
        r"\[\d+, \d+\] numerical -?[\d.e-]+, analytical -?[\d.e-]+; .*; and \d+ more\. "
        r"'scale', 'bias': right\. Sample: T=float64, ",
        message,
    )
    assert message.count("numerical") == message.count("analytical") == 4 and "tensor(" not in message
    log = (project.root / "output").read_text()
    assert all(line.startswith("# ") for line in log.splitlines()) and "tensor([[" in log


def test_each_input_whose_gradient_is_wrong_is_named(project: Project) -> None:
    """gradcheck stops at the first one."""
    project.replace(FORMULA, "(outer * z).sum((0, 2)).to(own), outer.sum", "outer.sum((0, 2)).to(own), (outer * z).sum")
    few(project, 'flat("float64")')
    message = register(project)
    assert "with respect to input 1 ('scale')" in message and ". 'x': right. 'bias': wrong, too. Sample: " in message


WHOLE = """Jacobian mismatch for output 0 with respect to input 1,
numerical:tensor([[1.00000000, 0.00000000],
        [0.50000000, nan]], dtype=torch.float64)
analytical:tensor([[1.00000001, 0.00000000],
        [2.50000000, 1.00000000]], dtype=torch.float64)
"""
CUT = WHOLE.replace("0.00000000]", "..., 0.00000000]")
FAST = """Jacobian mismatch for output 0 with respect to input 0,
numerical:0.5
analytical:0.75

The above quantities relating the numerical and analytical jacobians are computed
in fast mode.
Numerical:
 tensor([[1.], [2.]], dtype=torch.float64)
Analytical:
tensor([[1.], [-2.]], dtype=torch.float64)

The max per-element difference (slow mode) is: 4.0.
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            WHOLE,
            "Jacobian mismatch for output 0 with respect to input 1: 2 of 4 elements differ, by [element of the input, "
            "of the output]: [1, 0] numerical 0.5, analytical 2.5; [1, 1] numerical nan, analytical 1",
        ),
        (CUT, "Jacobian mismatch for output 0 with respect to input 1"),
        (
            FAST,
            "Jacobian mismatch for output 0 with respect to input 0: 1 of 2 elements differs, by [element of the "
            "input, of the output]: [1, 0] numerical 2, analytical -2",
        ),
        (
            FAST.replace("[-2.]", "..."),
            "Jacobian mismatch for output 0 with respect to input 0; the largest difference is 4",
        ),
        (
            FAST.replace("-2.", "2."),
            "Jacobian mismatch for output 0 with respect to input 0; no single element differs by more than rtol=0.001 "
            "atol=1e-05",
        ),
        ("Backward is not reentrant, i.e., running backward with", ""),
    ],
)
def test_messages_of_gradcheck_are_parsed(text: str, expected: str) -> None:
    from opmatrix.torch_checks import gradient

    assert gradient.summarize(text) == expected


LIBRARY = """
def define():
    library = torch.library.Library("mylibrary", "DEF")
    library.define("addandround_op(Tensor x) -> Tensor")
    library.impl("addandround_op", add_and_round, "CPU")
    library.impl("addandround_op", fake, "Meta")
    torch.library.register_autograd(NAME, backward, setup_context=setup_context, lib=library)
    return library
"""


@pytest.mark.parametrize("library", [False, True])
def test_a_formula_that_define_registers_is_refused(in_python: Project, library: bool) -> None:
    path = in_python.paths.torch_op("add_and_round")
    own = "        operator.register_autograd(own_backward, setup_context=own_context)\n"
    text = path.read_text().replace("        return operator\n", own + "        return operator\n")
    renamed = PLAIN.replace("backward", "own_backward").replace("setup_context", "own_context")
    moved = LIBRARY.replace("backward,", "own_backward,").replace("=setup_context", "=own_context")
    path.write_text(text + renamed + (moved if library else ""))
    assert prove(in_python, "schema") == (
        "ops/add_and_round/torch_op.py: define() registers a gradient of mylibrary::addandround_op, which nothing "
        "would hold against the reference. Make its functions setup_context() and backward() of the file itself, and "
        "leave the registration to opmatrix"
    )


TWO = """from opmatrix.spec import Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="parts{suffix}",
    summary="Two outputs, of which one has a gradient.",
    torch=TorchOp(name="my::parts{suffix}"{backward}),
    onnx=OnnxOp(domain="my.domain", op_type="Parts{suffix}"),
    inputs=({inputs}),
    outputs=({outputs}),
    tolerances={{"custom": {{"float64": Tolerance(rtol=1e-14, atol=0.0)}}}},
)
"""
CASE = """from opmatrix.spec import Case, Model, Random

MODELS = (Model(name="one", cases=(Case(name="plain", inputs={inputs}),)),)
"""
FORMULA_OF_ONE = """
def setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    {marked}


def backward(ctx, grad, _):
    return {factor} * ctx.saved_tensors[0] * grad
"""


def operator_of_two(root: Path, *, suffix: str = "", backward: str = "", taken: str = "x", given: str = "y z") -> None:
    folder, kernel = root / f"ops/parts{suffix}", root / f"native/parts{suffix}/kernel.h"
    folder.mkdir(parents=True)
    inputs = "".join(f'Input(name="{name}", type="float64"), ' for name in taken.split())
    outputs = "".join(f'Output(name="{n}", type="float64", shape=SameAs(input="x")), ' for n in given.split())
    text = TWO.format(suffix=suffix, backward=backward, inputs=inputs, outputs=outputs)
    (folder / "spec.py").write_text(text)
    drawn = ", ".join(f'"{name}": Random(shape=(2, 3))' for name in taken.split())
    (folder / "cases.py").write_text(CASE.format(inputs="{" + drawn + "}"))
    values = {"y z": "x * x, x * 3", "grad_x": "2 * x * grad_y"}[given]
    (folder / "reference.py").write_text(f"def parts{suffix}({', '.join(taken.split())}):\n    return {values}\n")
    kernel.parent.mkdir(parents=True)
    kernel.write_text("#pragma once\n")
    drawn_cases.write(Project(root).paths.drawn_inputs(f"parts{suffix}"), [])


def gradient_of_two(project: Project) -> str:
    """Return the message of the error that the gradient part raises for parts, or ""."""

    def run() -> None:
        from opmatrix.torch_checks import register

        register.run(project.paths, load_operator(project.paths, "parts"), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # as above

    return forked(run, project.root / "output")


def have_gradients(project: Project) -> str:
    """Return which outputs of parts require a gradient, as the operator gives them to its callers."""

    def run() -> None:
        import torch

        from opmatrix.torch_ops import load

        library = torch.library.Library("my", "FRAGMENT")
        library.define("parts(Tensor x) -> (Tensor, Tensor)")
        library.impl("parts", lambda x: (x * x, x * 3), "CPU")
        formula = load.gradient(project.paths, load_operator(project.paths, "parts").spec)
        assert formula is not None
        formula.register("my::parts", library)
        outputs = torch.ops.my.parts(torch.ones(2, dtype=torch.float64, requires_grad=True))
        print([output.requires_grad for output in outputs])

    assert forked(run, project.root / "output") == ""
    return (project.root / "output").read_text().strip()


MARK = "ctx.mark_non_differentiable(output[1])"


@pytest.mark.parametrize(
    ("marked", "factor", "have", "expected"),
    [
        (MARK, 2, [True, False], ""),
        (MARK, 3, [True, False], "Jacobian mismatch for output 0 with respect to input 0"),
        ("pass", 2, [True, True], "Jacobian mismatch for output 1 with respect to input 0"),
    ],
)
def test_an_output_may_be_marked_as_not_differentiable(
    marked: str, factor: int, have: list[bool], expected: str, tmp_path: Path
) -> None:
    project = Project.copy(tmp_path / "project", operators=())
    operator_of_two(project.root)
    project.paths.torch_op("parts").write_text(FORMULA_OF_ONE.format(marked=marked, factor=factor))
    assert have_gradients(project) == str(have)
    message = gradient_of_two(project)
    assert (expected in message) if expected else message == ""


def test_an_output_that_a_backward_operator_does_not_take_has_no_gradient(tmp_path: Path) -> None:
    project = Project.copy(tmp_path / "project", operators=())
    operator_of_two(project.root, backward=', backward="parts_backward"')
    operator_of_two(project.root, suffix="_backward", taken="grad_y x", given="grad_x")
    assert have_gradients(project) == "[True, False]"
    assert gradient_of_two(project) == ""
