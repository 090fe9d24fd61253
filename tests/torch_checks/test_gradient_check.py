"""The gradient of group_norm passes, and the message of a wrong one. What a gradient check records and prints: what its
samples cover, what they do not, and the numbers of a fault. tests/faults/gradients.toml has the faults that it finds,
also with drawn inputs, of which there are none here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.declaration.load import load_operator
from opmatrix.ort_checks import save_case
from opmatrix.project.paths import Paths
from opmatrix.search import drawn as drawn_cases
from tests.support.forked import forked
from tests.support.projects import ROOT, Project, edited, replace_in
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


def registered(paths: Paths, name: str = "group_norm") -> str:
    """Return the message of the error that the gradient part raises, or ""."""

    def run() -> None:
        from opmatrix.torch_checks import register

        register.run(paths, load_operator(paths, name), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: gradcheck needs it

    return forked(run, paths.root / "output")


def register(project: Project, name: str = "group_norm") -> str:
    return registered(project.paths, name)


def results_of(paths: Paths, name: str = "group_norm") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(paths.register_manifest(name, "gradient", torch="2.13").read_text())[
        "results"
    ]
    return found


def test_a_right_formula_passes_without_output(project: Project) -> None:
    assert register(project) == ""
    assert (project.root / "output").read_text() == ""
    results = results_of(project.paths)
    checks = {(r.get("case"), r["check"]) for r in results}
    assert {("sliced_float64", "gradcheck"), ("expanded_float64", "gradcheck")} <= checks
    assert ("flat_float64", "gradgradcheck") in checks
    assert "nan_float64" not in {r.get("case") for r in results}  # a NaN has no derivative


def test_a_wrong_gradient_of_a_gradient_has_numbers_and_no_data_and_a_missing_one_no_numbers(project: Project) -> None:
    few(project, 'flat("float64")')
    with edited(project.root / FORMULA, "centred * rate", "(centred * rate).detach()"):
        assert "torch.autograd.gradgradcheck says: Jacobian mismatch" in register(project)
    (record,) = measured(project.paths)
    assert record["expected_is"] == "numerical Jacobian" and not record["saved"] and record["differing"]
    project.replace(FORMULA, "(outer * z).sum((0, 2)).to(own)", "None")
    message = register(project)
    assert "gives no gradient for 'scale'. Give one, or name it in" in message and FORMULA in message
    assert measured(project.paths) == []


def measured(paths: Paths, name: str = "group_norm") -> list[dict[str, Any]]:
    """Return what the report has of a failing check."""
    path = paths.mismatches(paths.register_manifest(name, "gradient", torch="2.13"))
    found: list[dict[str, Any]] = json.loads(path.read_text())["mismatches"] if path.exists() else []
    return found


def test_a_wrong_gradient_has_data_and_replays_in_torch_alone(project: Project, tmp_path: Path) -> None:
    """The log has the matrices, the record the gradient of the input by its axes. The folder's formula, corrected
    there, gives the expected one."""
    right = (project.root / FORMULA).read_text()
    project.replace(FORMULA, "- z * mean(inner * z)", "")
    few(project, 'flat("float64")')
    message = register(project)
    assert "gradcheck says: Jacobian mismatch for output 0 with respect to input 0" in message
    assert message.count("numerical") == message.count("analytical") == 4 and "tensor(" not in message
    log = (project.root / "output").read_text()
    assert all(line.startswith("# ") for line in log.splitlines()) and "tensor([[" in log
    (record,) = measured(project.paths)
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


def test_cases_of_float32_are_checked_in_float64_and_without_cases_or_drawn_inputs_nothing_is(project: Project) -> None:
    few(project, 'static("float32")')
    assert register(project) == ""
    few(project, "")
    project.replace("ops/group_norm/cases.py", "shape=(3, 2, 1, 2)", "shape=(3, 2, 1, 200)")
    expected = "group_norm: no case to check its gradient with. Add one to cases.py that is finite, and has at most 256"
    assert expected in register(project)
    project.paths.drawn_inputs("group_norm").unlink()
    assert "Run: python -m opmatrix draw-inputs group_norm" in register(project)


def test_drawn_inputs_are_samples_with_moderate_values(project: Project) -> None:
    """Shapes, attributes and numbers of groups that no case has; two thirds of them are accepted."""

    def draw() -> None:
        from opmatrix.search import draw_inputs

        draw_inputs.run(project.paths, load_operator(project.paths, "group_norm"))

    assert forked(draw, project.root / "output") == ""
    assert register(project) == ""
    (covered,) = [r for r in results_of(project.paths) if r["check"] == "samples"]
    assert covered["samples"] > 50
    assert covered["inputs"] == ["bias", "scale", "x"]


def test_an_operator_in_python_without_a_formula_passes(tmp_path: Path) -> None:
    project = Project.copy(tmp_path / "project", operators=("add_and_round", "custom_op_one", "custom_op_two"))
    drawn_cases.write(project.paths.drawn_inputs("add_and_round"), [])
    assert register(project, "add_and_round") == ""
    assert results_of(project.paths, "add_and_round") == []


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


@pytest.fixture
def parts(tmp_path: Path) -> Project:
    """tests/projects/gradients with `parts` alone: two outputs, of which one has a gradient."""
    project = Project.copy(tmp_path / "project", operators=())
    shutil.copytree(ROOT / "tests/projects/gradients/ops/parts", project.paths.op("parts"))
    return project


def have_gradients(project: Project) -> str:
    """Return which outputs of parts require a gradient, as the operator gives them to its callers."""

    def run() -> None:
        import torch

        from opmatrix.torch_ops import load

        library = torch.library.Library("gradients", "FRAGMENT")
        library.define("parts(Tensor x) -> (Tensor, Tensor)")
        library.impl("parts", lambda x: (x * x, x * 3), "CPU")
        formula = load.gradient(project.paths, load_operator(project.paths, "parts").spec)
        assert formula is not None
        formula.register("gradients::parts", library)
        outputs = torch.ops.gradients.parts(torch.ones(2, dtype=torch.float64, requires_grad=True))
        print([output.requires_grad for output in outputs])

    assert forked(run, project.root / "output") == ""
    return (project.root / "output").read_text().strip()


def test_an_output_may_be_marked_as_not_differentiable(parts: Project) -> None:
    assert have_gradients(parts) == "[True, False]"
    parts.replace("ops/parts/torch_op.py", "    ctx.mark_non_differentiable(output[1])\n", "")
    assert have_gradients(parts) == "[True, True]"


def test_an_output_that_a_backward_operator_does_not_take_has_no_gradient(parts: Project) -> None:
    parts.paths.torch_op("parts").unlink()
    parts.replace("ops/parts/spec.py", "python=True", 'backward="parts_backward"')
    other = parts.paths.op("parts").with_name("parts_backward")
    shutil.copytree(parts.paths.op("parts"), other)
    for path, old, new in (
        ("spec", "inputs=(", 'inputs=(Input(name="grad_y", type="float64"), '),
        ("spec", '        Output(name="z", type="float64", shape=SameAs(input="x")),\n', ""),
        ("spec", 'name="y"', 'name="grad_x"'),
        ("spec", ', backward="parts_backward"', ""),
        ("spec", "parts", "parts_backward"),
        ("spec", '"Parts"', '"PartsBackward"'),
        ("cases", "inputs={", 'inputs={"grad_y": Random(shape=(2, 3)), '),
        ("reference", "parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]", "parts_backward(grad_y, x)"),
        ("reference", "x * x, x * 3", "2 * x * grad_y"),
    ):
        replace_in(other / f"{path}.py", old, new)
    for name in ("parts", "parts_backward"):
        drawn_cases.write(parts.paths.drawn_inputs(name), [])
    assert have_gradients(parts) == "[True, False]"
    assert register(parts, "parts") == ""


def check(root: Path, *edits: tuple[str, str, str], name: str = "mix") -> tuple[str, list[dict[str, Any]], str]:
    """Return the message of the gradient part, or "", the results in its record, and what it prints."""
    paths = Paths(root)
    shutil.copytree(ROOT / "tests/projects/gradients/ops" / name, paths.op(name))
    for file, old, new in edits:
        replace_in(paths.op(name) / f"{file}.py", old, new)
    drawn_cases.write(paths.drawn_inputs(name), [])
    message = registered(paths, name)
    return message, results_of(paths, name), (root / "output").read_text()


def test_a_right_gradient_passes_and_the_record_has_what_was_covered(tmp_path: Path) -> None:
    message, results, printed = check(tmp_path)
    assert message == printed == ""
    (covered,) = [r for r in results if r["check"] == "samples"]
    assert covered["inputs"] == ["bias", "x"]
    assert covered["dtypes"] == ["bias: float32", "bias: float64", "x: float32", "x: float64"]
    assert {*covered["attributes"]["dim"]} == {-2, -1, 0, 1}


def test_an_operator_without_float64_is_checked_in_a_float64_instance(tmp_path: Path) -> None:
    message, results, _ = check(
        tmp_path,
        ("spec", '("float32", "float64")', '("float32",)'),
        ("spec", '            "float64": Tolerance(rtol=1e-12, atol=1e-12),\n', ""),
        ("cases", '    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs=X),)),\n', ""),
    )
    assert message == ""
    assert {"gradcheck", "gradgradcheck", "samples"} == {r["check"] for r in results}
    (covered,) = [r for r in results if r["check"] == "samples"]
    assert {"x: float32", "bias: float32"} <= {*covered["dtypes"]}


def test_a_gradient_that_is_no_derivative_is_compared_with_its_own_reference(tmp_path: Path) -> None:
    message, results, printed = check(tmp_path, name="quant")
    assert message == printed == ""
    (covered,) = results
    assert covered["not_a_derivative"] == "straight-through: the derivative of rounding is 0"
    assert covered["dtypes"] == ["x: float32", "x: float64"]


def test_a_jump_that_a_rounding_crosses_is_no_fault(tmp_path: Path) -> None:
    message, results, _ = check(tmp_path, name="gate")
    assert message == "" and any("x" in r.get("inputs", ()) for r in results)


@pytest.mark.parametrize(
    ("old", "new", "instance"),
    [
        ("grad.sum(0) if", "0 * grad.sum(0) if", "bias (2,), in a float64 instance"),
        ("    return of_x", "    assert x.dtype == torch.float64\n    return of_x", ""),
    ],
    ids=["numbers", "an error"],
)
def test_numbers_that_differ_are_kept(old: str, new: str, instance: str, tmp_path: Path) -> None:
    """The case of float32, the only one with a bias, is checked in a float64 instance as well."""
    message, _, _ = check(tmp_path, ("torch_op", old, new))
    assert message.startswith("mix-single: gradient: ") and f"Sample: T=float32, dim=1, x (3, 2), {instance}" in message
    assert "Replay: python -m opmatrix register mix --part gradient" in message
    assert bool([*(tmp_path / "build").rglob("*.mismatches.json")]) == bool(instance)


@pytest.mark.parametrize(
    ("edits", "note"),
    [
        ([("cases", "X | BIAS", "X")],
         "no sample covers bias: no usable sample gives it. Add a small, finite case that does"),
        (
            [
                ("torch_op", "of_bias = grad.sum(0)", "of_bias = 0 * grad.sum(0)"),
                ("reference", "y + bias", "y + 0 * bias"),
            ],
            "no sample covers bias: its gradient is zero in every sample. Add a case in which it is not",
        ),
        ([("spec", "minimum=-2, maximum=1", "minimum=1, maximum=2")],
         "every sample has dim=1. Add a small, finite case with another"),
    ],
)  # fmt: skip
def test_what_no_sample_covers_is_printed_and_recorded(
    edits: list[tuple[str, str, str]], note: str, tmp_path: Path
) -> None:
    message, results, printed = check(tmp_path, *edits)
    assert message == ""
    assert f"mix: gradient: {note}\n" in printed
    assert note in [r.get("note") for r in results]
