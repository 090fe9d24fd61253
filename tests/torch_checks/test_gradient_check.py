"""The gradient of group_norm passes, and each kind of fault in a formula is named."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Literal

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.testdata import drawn_cases
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = pytest.mark.torch

FORMULA = "ops/group_norm/torch_op.py"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """A project with few models and without outputs: the formula needs no library."""
    project = Project.copy(tmp_path / "project")
    few(project, 'static("float64"), flat("float64"), half("float16"), half("bfloat16")')
    drawn_cases.write(project.layout.drawn_inputs("group_norm"), [])
    return project


def few(project: Project, models: str) -> None:
    cases = project.layout.cases("group_norm")
    cases.write_text(cases.read_text() + f"\nMODELS = (SEED, {models})\n")


def register(project: Project) -> str:
    """Return the message of the error that the gradient part raises, or ""."""

    def run() -> None:
        from opmatrix.stages import register

        register.run(project.layout, load_operator(project.layout, "group_norm"), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: gradcheck needs it

    return forked(run, project.root / "output")


def test_a_right_formula_passes_without_output(project: Project) -> None:
    assert register(project) == ""
    assert (project.root / "output").read_text() == ""
    results = json.loads(project.layout.register_manifest("group_norm", "gradient", torch="2.13").read_text())[
        "results"
    ]
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


def test_a_formula_without_a_case_that_checks_it_is_refused(project: Project) -> None:
    path = project.layout.cases("group_norm")
    few(project, "")
    path.write_text(path.read_text().replace("shape=(3, 2, 1, 2)", "shape=(3, 2, 1, 200)"))
    expected = "group_norm: no case to check its gradient with. Add one to cases.py that is finite, and has at most 256"
    assert expected in register(project)


def test_cases_of_float32_are_checked_in_float64(project: Project) -> None:
    few(project, 'static("float32")')
    assert register(project) == ""


def test_without_drawn_inputs_the_message_names_the_command(project: Project) -> None:
    project.layout.drawn_inputs("group_norm").unlink()
    assert "Run: python -m opmatrix draw-inputs group_norm" in register(project)


def test_drawn_inputs_are_samples_with_moderate_values(project: Project) -> None:
    """Shapes, attributes and numbers of groups that no case has; two thirds of them are accepted."""

    def draw() -> None:
        from opmatrix.stages import draw_inputs

        draw_inputs.run(project.layout, load_operator(project.layout, "group_norm"))

    assert forked(draw, project.root / "output") == ""
    assert register(project) == ""
    data = json.loads(project.layout.register_manifest("group_norm", "gradient", torch="2.13").read_text())
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
    drawn_cases.write(project.layout.drawn_inputs("add_and_round"), [])
    return project


def prove(project: Project, part: Literal["schema", "gradient"]) -> str:
    """Return the message of the error that a part raises for add_and_round, or ""."""

    def run() -> None:
        from opmatrix.stages import codegen, register

        for name in ("add_and_round", "custom_op_one", "custom_op_two"):
            codegen.run(project.layout, load_operator(project.layout, name))
        register.run(project.layout, load_operator(project.layout, "add_and_round"), part=part)

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: the schema part's exporters too

    import opmatrix.torch_checks.opcheck  # noqa: F401

    return forked(run, project.root / "output")


def written(project: Project) -> list[dict[str, str]]:
    data = json.loads(project.layout.register_manifest("add_and_round", "gradient", torch="2.13").read_text())
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
    path = in_python.layout.torch_op("add_and_round")
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
    assert re.search(r"input 0: \d+ of \d+ elements differ, by \[element of the input, of the output\]: \[\d", message)
    assert re.search(
        r"\[\d+, \d+\] numerical -?[\d.e-]+, analytical -?[\d.e-]+; .*; and \d+ more\. Sample: T=float64, ", message
    )
    assert message.count("numerical") == message.count("analytical") == 4 and "tensor(" not in message
    log = (project.root / "output").read_text()
    assert all(line.startswith("# ") for line in log.splitlines()) and "tensor([[" in log


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
            "Jacobian mismatch for output 0 with respect to input 0; the largest difference is 4.0",
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
    from opmatrix.torch_checks import gradient_check

    assert gradient_check.summarize(text) == expected


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
    path = in_python.layout.torch_op("add_and_round")
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
