"""A gradient that is wrong only for one dtype, attribute or absent input is found, and what no sample covers is named.

The operators have no kernel: the check computes with the reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from tests.support.forked import forked
from tests.support.projects import write_files

pytestmark = pytest.mark.torch

SPEC = """
from opmatrix.spec import Attribute, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

SPEC = OpSpec(
    name="mix",
    summary="Add up squares along an axis.",
    torch=TorchOp(name="faults::mix", python=True),
    onnx=OnnxOp(domain="faults", op_type="Mix"),
    types={"T": ("float32", "float64")},
    inputs=(
        Input(name="x", type="T", dims=("N", "C")),
        Input(name="bias", type="T", dims=("C",), optional=True),
    ),
    attributes=(Attribute(name="dim", kind="int", default=1, minimum=-2, maximum=1),),
    outputs=(Output(name="y", type="T", shape=SameAs(input="x")),),
    tolerances={
        "custom": {
            "float32": Tolerance(rtol=1e-5, atol=1e-5),
            "float64": Tolerance(rtol=1e-12, atol=1e-12),
        }
    },
    kernel="",
)
"""
REFERENCE = """
import numpy as np

def mix(x, bias, *, dim):
    y = np.cumsum(x * x, axis=dim)
    return y if bias is None else y + bias
"""
# Of those that gradcheck takes, no case has a bias or another axis than the last.
CASES = """
from opmatrix.spec import Case, Model, Random

X, BIAS = {"x": Random(shape=(3, 2))}, {"bias": Random(shape=(2,))}
MODELS = (
    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs=X),)),
    Model(name="single", types={"T": "float32"}, cases=(Case(name="single", inputs=X | BIAS),)),
)
"""
TORCH_OP = """
import torch

def setup_context(ctx, inputs, output):
    x, bias, ctx.dim = inputs
    ctx.given = bias is not None
    ctx.save_for_backward(x)

def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    of_x = 2 * x * grad.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim)
    of_bias = grad.sum(0) if ctx.given else None
    return of_x, of_bias, None
"""
FILES = {"spec": SPEC, "reference": REFERENCE, "cases": CASES, "torch_op": TORCH_OP}


def check(root: Path, files: Mapping[str, str], *, name: str = "mix") -> tuple[str, list[dict[str, Any]], str]:
    """Return the message of the gradient part, or "", the results in its record, and what it prints."""
    paths = Paths(root)
    write_files(paths.op(name), {f"{file}.py": text for file, text in files.items()})

    def run() -> None:
        from opmatrix.search import drawn
        from opmatrix.torch_checks import register

        drawn.write(paths.drawn_inputs(name), [])
        register.run(paths, load_operator(paths, name), part="gradient")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # once for all children: gradcheck needs it

    message = forked(run, root / "output")
    record = json.loads(paths.register_manifest(name, "gradient", torch="2.13").read_text())
    return message, record["results"], (root / "output").read_text()


def changed(**edits: tuple[str, str]) -> dict[str, str]:
    files = dict(FILES)
    for file, (old, new) in edits.items():
        assert old in files[file]
        files[file] = files[file].replace(old, new)
    return files


def test_a_right_gradient_passes_and_the_record_has_what_was_covered(tmp_path: Path) -> None:
    message, results, printed = check(tmp_path, FILES)
    assert message == printed == ""
    (covered,) = [r for r in results if r["check"] == "samples"]
    assert covered["inputs"] == ["bias", "x"]
    assert covered["dtypes"] == ["bias: float32", "bias: float64", "x: float32", "x: float64"]
    assert {*covered["attributes"]["dim"]} == {-2, -1, 0, 1}


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        pytest.param(
            {"torch_op": ("grad.sum(0) if", "0 * grad.sum(0) if")},
            r"mix-single: gradient: for 'bias' backward\(\) gives 0 at \[0\], the numerical derivative is -?[\d.]+; "
            r".*; 2 of 2 elements differ. Sample: T=float32, dim=1, x \(3, 2\), bias \(2,\), in a float64 instance",
            id="zeros",
        ),
        pytest.param(
            {"torch_op": ("return of_x,", "return of_x * (2 if x.dtype == torch.float32 else 1),")},
            r"mix-single: gradient: in float32, for 'x', backward\(\) gives -?[\d.]+ at \[0, 0\], "
            r"in float64 it gives -?[\d.]+; .* of 6 elements differ; allowed: 0.001 of the largest. Sample: T=float32",
            id="float32",
        ),
        pytest.param(
            {"torch_op": ("    return of_x", "    if ctx.dim == 0:\n        of_x = 2 * x * grad\n    return of_x")},
            r"for 'x' backward\(\) gives -?[\d.]+ at \[0, 0\], the numerical derivative is -?[\d.]+; .* "
            r"Sample: T=float64, dim=0, x \(3, 2\), bias absent. Formula: ops/mix/torch_op.py",
            id="attribute",
        ),
        pytest.param(
            {
                "torch_op": ("    return of_x", "    of_x = of_x if ctx.given else 2 * of_x\n    return of_x"),
                "cases": ("inputs=X)", "inputs=X | BIAS)"),
            },
            r"for 'x' backward\(\) gives .* Sample: T=float(32|64), dim=1, x \(3, 2\), bias absent",
            id="absent",
        ),
        pytest.param(
            {
                "torch_op": ("    return of_x", "    assert x.dtype == torch.float64\n    return of_x"),
            },
            r"backward\(\) raises AssertionError: .* Sample: T=float32, dim=1",
            id="raises",
        ),
        pytest.param(
            {"torch_op": ("return of_x,", "return of_x.float(),")},
            r"mix-double: gradient: backward\(\) returns float32 for 'x', which is float64. Compute in the dtype",
            id="narrow",
        ),
        pytest.param(
            {"torch_op": ("return of_x,", "return of_x.double(),")},
            r"mix-single: gradient: backward\(\) returns float64 for 'x', which is float32. .* Sample: T=float32",
            id="wide",
        ),
        pytest.param(
            {"torch_op": ("    (x,)", "    grad = grad if grad.is_contiguous() else grad.flip(0)\n    (x,)")},
            r"with a gradient of the output that is not contiguous, for 'x', backward\(\) gives -?[\d.]+ at \[0, 0\], "
            r"with a contiguous one it gives -?[\d.]+; .* Sample: T=float64, dim=1, x \(3, 2\), bias absent",
            id="strides",
        ),
        pytest.param(
            {"torch_op": ("    (x,)", "    grad = grad * 2 if 0 in grad.stride() else grad\n    (x,)")},
            r"with an expanded gradient of the output, as sum\(\).backward\(\) gives it, for 'x', backward\(\) gives ",
            id="expanded",
        ),
        pytest.param(
            {"torch_op": ("    (x,)", "    grad.view(-1)\n    (x,)")},
            r"backward\(\) raises RuntimeError: view size is not compatible .* Sample: T=float64, dim=1, x \(3, 2\)",
            id="view",
        ),
        pytest.param(
            {"torch_op": ("grad.sum(0) if", "ctx.needs_input_grad[0] * grad.sum(0) if")},
            r"while only 'bias' requires a gradient, backward\(\) gives 0 at \[0\], while all inputs do it gives "
            r"-?[\d.]+; .* Sample: T=float32, dim=1, x \(3, 2\), bias \(2,\), in a float64 instance",
            id="frozen",
        ),
        pytest.param(
            {"torch_op": ("grad.sum(0) if", "grad.sum(0) if ctx.needs_input_grad[0] and")},
            r"while only 'bias' requires a gradient, it gives none",
            id="frozen_none",
        ),
        pytest.param(
            {
                "spec": ("minimum=-2, maximum=1", "minimum=0, maximum=40"),
                "reference": ("np.cumsum(x * x, axis=dim)", "x * x * dim"),
                "torch_op": (
                    "grad.flip(ctx.dim).cumsum(ctx.dim).flip(ctx.dim)",
                    "grad * (8 if ctx.dim == 7 else ctx.dim)",
                ),
            },
            r"for 'x' backward\(\) gives .*, the numerical derivative is .* Sample: T=float(32|64), dim=7, x \(3, 2\)",
            id="inside",
        ),
    ],
)
def test_a_gradient_that_is_wrong_in_places_is_found(
    edits: dict[str, tuple[str, str]], expected: str, tmp_path: Path
) -> None:
    message, _, _ = check(tmp_path, changed(**edits))
    assert re.search(expected, message), message
    assert "Replay: python -m opmatrix register mix --part gradient" in message
    records = [*(tmp_path / "build").rglob("*.mismatches.json")]
    assert bool(records) == (" backward() gives " in message), "numbers that differ are kept"


FLOAT32 = ('("float32", "float64")', '("float32",)')
ONLY_SINGLE = ('    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs=X),)),\n', "")


def test_an_operator_without_float64_is_checked_in_a_float64_instance(tmp_path: Path) -> None:
    files = changed(spec=FLOAT32, cases=ONLY_SINGLE)
    files["spec"] = files["spec"].replace('            "float64": Tolerance(rtol=1e-12, atol=1e-12),\n', "")
    message, results, _ = check(tmp_path / "right", files)
    assert message == ""
    assert {"gradcheck", "gradgradcheck", "samples"} == {r["check"] for r in results}
    (covered,) = [r for r in results if r["check"] == "samples"]
    assert {"x: float32", "bias: float32"} <= {*covered["dtypes"]}

    files["torch_op"] = TORCH_OP.replace("2 * x", "3 * x")
    message, _, _ = check(tmp_path / "wrong", files)
    assert (
        "mix-single: gradient: torch.autograd.gradcheck says: Jacobian mismatch for output 0 with respect to" in message
    )

    files |= {"torch_op": TORCH_OP, "reference": REFERENCE.replace("x * x", "(x * x).astype(np.float32)")}
    message, _, _ = check(tmp_path / "narrow", files)
    assert "reference.py gives equal outputs at a step of 1e-12, others at 1" in message
    assert "Compute in the dtype of the inputs" in message


@pytest.mark.parametrize(
    ("edits", "note"),
    [
        (
            {"cases": ("X | BIAS", "X")},
            "no sample covers bias: no usable sample gives it. Add a small, finite case that does",
        ),
        (
            {
                "torch_op": ("of_bias = grad.sum(0)", "of_bias = 0 * grad.sum(0)"),
                "reference": ("y + bias", "y + 0 * bias"),
            },
            "no sample covers bias: its gradient is zero in every sample. Add a case in which it is not",
        ),
        (
            {"spec": ("minimum=-2, maximum=1", "minimum=1, maximum=2")},
            "every sample has dim=1. Add a small, finite case with another",
        ),
    ],
)
def test_what_no_sample_covers_is_printed_and_recorded(
    edits: dict[str, tuple[str, str]], note: str, tmp_path: Path
) -> None:
    message, results, printed = check(tmp_path, changed(**edits))
    assert message == ""
    assert f"mix: gradient: {note}\n" in printed
    assert note in [r.get("note") for r in results]


QUANT = {
    "spec": SPEC.replace('"mix"', '"quant"')
    .replace("mix", "quant")
    .replace('        Input(name="bias", type="T", dims=("C",), optional=True),\n', "")
    .replace('name="dim", kind="int", default=1, minimum=-2, maximum=1', 'name="step", kind="float", default=0.5'),
    "reference": """
import numpy as np

def quant(x, *, step):
    if step <= 0:
        raise ValueError(f"step must be above 0, got {step}")
    return (np.clip(np.rint(x / step), -2, 2) * step).astype(x.dtype)

def quant_gradient(grad_y, x, *, step):
    return np.where(abs(x / step) < 2.5, grad_y, 0)
""",
    "cases": CASES.replace("X | BIAS", "X"),
    "torch_op": """
import torch

NOT_A_DERIVATIVE = "straight-through: the derivative of rounding is 0"

def setup_context(ctx, inputs, output):
    x, ctx.step = inputs
    ctx.save_for_backward(x)

def backward(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * ((x / ctx.step).abs() < 2.5), None
""",
}


def edited(file: str, old: str, new: str) -> dict[str, str]:
    assert old in QUANT[file]
    return QUANT | {file: QUANT[file].replace(old, new)}


def test_a_gradient_that_is_no_derivative_is_compared_with_its_own_reference(tmp_path: Path) -> None:
    message, results, printed = check(tmp_path, QUANT, name="quant")
    assert message == printed == ""
    (covered,) = results
    assert covered["not_a_derivative"] == "straight-through: the derivative of rounding is 0"
    assert covered["dtypes"] == ["x: float32", "x: float64"]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("torch_op", "< 2.5", "< 1.5", "for 'x' backward() gives 0 at ["),
        ("torch_op", "grad *", "2 * grad *", "quant_gradient() gives "),
        (
            "reference",
            "def quant_gradient",
            "def gradient",
            "no function quant_gradient(); ops/quant/torch_op.py declares",
        ),
        (
            "torch_op",
            "NOT_A_DERIVATIVE =",
            "NOT =",
            "quant_gradient() is not used: ops/quant/torch_op.py has no NOT_A_",
        ),
        (
            "torch_op",
            '"straight-through: the derivative of rounding is 0"',
            "True",
            "NOT_A_DERIVATIVE is True, expected: ",
        ),
        (
            "reference",
            "return np.where(abs(x / step) < 2.5, grad_y, 0)",
            "return 1, 2",
            "returns 2 gradients, expected: ",
        ),
        ("reference", "return np.where(", "return np.sum(", "reference.py:10: TypeError"),
        (
            "reference",
            "grad_y, 0)",
            "grad_y, 0)[0]",
            "quant_gradient() returns (2,) for 'x', which has the shape (3, 2)",
        ),
    ],
)
def test_a_fault_of_such_a_gradient_is_named(file: str, old: str, new: str, expected: str, tmp_path: Path) -> None:
    message, _, _ = check(tmp_path, edited(file, old, new), name="quant")
    assert expected in message


def test_a_gradient_that_is_no_derivative_must_be_declared(tmp_path: Path) -> None:
    files = edited("torch_op", "NOT_A_DERIVATIVE", "REASON")
    files["reference"] = files["reference"].partition("def quant_gradient")[0]
    message, _, _ = check(tmp_path, files, name="quant")
    assert "gradcheck says: Jacobian mismatch" in message
    assert "or declare NOT_A_DERIVATIVE in torch_op.py" in message


DEFINE = """

def mix(x, bias, dim=1):
    y = torch.cumsum(x * x, dim)
    return y if bias is None else y + bias

def define():
    library = torch.library.Library("faults", "FRAGMENT")
    library.define("mix(Tensor x, Tensor? bias, int dim=1) -> Tensor")
    library.impl("mix", mix, "CPU")
    library.impl("mix", lambda x, bias, dim=1: torch.empty_like(x), "Meta")
    return library
"""


@pytest.mark.parametrize(
    ("untraceable", "expected"),
    [
        ("ctx.given", "mix-single: torch.library.opcheck's test_aot_dispatch_dynamic says: "),
        ("not ctx.given", "mix-double: torch.library.opcheck's test_aot_dispatch_static says: "),
    ],
)
def test_a_formula_that_does_not_trace_is_found_with_and_without_an_optional_input(
    untraceable: str, expected: str, tmp_path: Path
) -> None:
    paths = Paths(tmp_path)
    fault = f"    if {untraceable}:\n        assert x.sum().item() < 1e9\n    return of_x"
    files = changed(torch_op=("    return of_x", fault))
    files["torch_op"] += DEFINE
    write_files(paths.op("mix"), {f"{file}.py": text for file, text in files.items()})

    def run() -> None:
        from opmatrix.codegen import write_code
        from opmatrix.torch_checks import register

        write_code.run(paths, load_operator(paths, "mix"))
        register.run(paths, load_operator(paths, "mix"), part="schema")

    import torch.fx.experimental.symbolic_shapes  # noqa: F401  # as above

    import opmatrix.torch_checks.opcheck  # noqa: F401

    assert expected in forked(run, tmp_path / "output")


GATE = {
    "spec": SPEC.replace("mix", "gate")
    .replace("Mix", "Gate")
    .replace('Input(name="bias", type="T", dims=("C",), optional=True)', 'Input(name="at", type="T", dims=("C",))')
    .replace(
        'Attribute(name="dim", kind="int", default=1, minimum=-2, maximum=1)',
        'Attribute(name="edge", kind="float", default=0.3)',
    ),
    "reference": """
import numpy as np

def gate(x, at, *, edge):
    return np.where(at <= edge, x * x, 0).astype(x.dtype)
""",
    "cases": """
from opmatrix.spec import Case, Model, Random, Values

X, BESIDE, AT_EDGE = Random(shape=(3, 2)), Values(values=(0.4, 0.1)), Values(values=(0.3, 0.1))
MODELS = (
    Model(name="double", types={"T": "float64"}, cases=(Case(name="double", inputs={"x": X, "at": BESIDE}),)),
    Model(name="single", types={"T": "float32"}, cases=(Case(name="single", inputs={"x": X, "at": AT_EDGE}),)),
)
""",
    # torch passes edge as 0.3, ONNX and the reference have the float32 next to it: at 0.3 they differ.
    "torch_op": """
import torch

WITHOUT_GRADIENT = ("at",)

def setup_context(ctx, inputs, output):
    x, at, ctx.edge = inputs
    ctx.save_for_backward(x, at)

def backward(ctx, grad):
    x, at = ctx.saved_tensors
    return torch.where(at <= ctx.edge, 2 * x * grad, 0), None, None
""",
}


def test_a_jump_that_a_rounding_crosses_is_no_fault(tmp_path: Path) -> None:
    message, results, _ = check(tmp_path, GATE, name="gate")
    assert message == ""
    assert any("x" in r.get("inputs", ()) for r in results)


def test_a_fault_beside_a_jump_is_found(tmp_path: Path) -> None:
    changed = "    if x.dtype == torch.float32 and at[0] < 0.35:\n        x = 2 * x\n    return"
    faulty = GATE | {"torch_op": GATE["torch_op"].replace("    return", changed)}
    message, _, _ = check(tmp_path, faulty, name="gate")
    assert message.startswith("gate-single: gradient: in float32, for 'x'") and "in float64 it gives" in message


# The attribute's other values, such as 1, put `at` on the jumps of ceil. A formula that rounds in another order may be
# on their other side.
STAIRS = {
    "spec": GATE["spec"].replace("gate", "stairs").replace("Gate", "Stairs"),
    "reference": """
import numpy as np

def stairs(x, at, *, edge):
    return (np.ceil(at * edge) * x).astype(x.dtype)
""",
    "cases": """
from opmatrix.spec import Case, Model, Random, Values

INPUTS = {"x": Random(shape=(3, 2)), "at": Values(values=(8.0, -16.0))}
MODELS = tuple(
    Model(name=dtype, types={"T": dtype}, cases=(Case(name=dtype, inputs=INPUTS),)) for dtype in ("float64", "float32")
)
""",
    "torch_op": """
import torch

WITHOUT_GRADIENT = ("at",)

def setup_context(ctx, inputs, output):
    x, at, ctx.edge = inputs
    ctx.save_for_backward(at)

def backward(ctx, grad):
    (at,) = ctx.saved_tensors
    return torch.ceil(at * ctx.edge * (1 + 1e-15)) * grad, None, None
""",
}


def test_a_formula_on_the_other_side_of_a_jump_is_no_fault(tmp_path: Path) -> None:
    message, _, _ = check(tmp_path, STAIRS, name="stairs")
    assert message == ""


def test_a_fault_where_every_sample_is_at_a_jump_is_found(tmp_path: Path) -> None:
    wrong = STAIRS["torch_op"].replace(") * grad,", ") * grad * (abs(ctx.edge - 0.3) < 1e-3),")
    message, _, _ = check(tmp_path, STAIRS | {"torch_op": wrong}, name="stairs")
    assert "for 'x' backward() gives 0 at [" in message and ", edge=0.3" not in message
