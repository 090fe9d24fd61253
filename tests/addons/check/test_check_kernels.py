"""`doit check` on models whose kernels have a fault: wrong values, a crash, an exit, a hang."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from onnx import helper, parser

from tests.addons.check.models import CHAIN, checked, model, one, wrong
from tests.support.projects import Project, edited
from tests.support.quick_start import fill_in

pytestmark = [pytest.mark.compile, pytest.mark.ort, pytest.mark.slow]

PAGE = Path(__file__).parents[3] / "docs/check.md"


def bare(text: str) -> list[str]:
    """Return lines without what differs between machines: milliseconds, and abbreviated paths."""
    return re.sub(r"[\d.e+-]+ ms|-[0-9a-f]{8}\b", "", text).splitlines()


def shown(command: str) -> list[str]:
    """Return the output of a command in docs/check.md."""
    _, found, rest = PAGE.read_text().partition(f"```console\n$ ./run doit check {command}\n{command}\n")
    assert found, command
    return bare(f"{command}\n" + rest.partition("```")[0])


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
    assert "test.customop::CustomOpOne 'one_b': 1 of 60 elements differs beyond rtol=0.0001 atol=1e-05" in line
    assert "first at (0, 1, 0), compared in float64. Its inputs: a float32[3, 4, 5] in -" in line
    assert "further" not in line
    assert "Kernel and ops/custom_op_one/reference.py differ" in line
    alone = line.rpartition("It alone: doit check ")[2]
    code, text = checked(kernel, alone)
    assert code == 1
    assert "1 nodes, custom: 1 test.customop::CustomOpOne" in text or "1 node, custom" in text
    assert wrong(text) == ["agrees", "first node"]


@pytest.mark.parametrize(
    "kernel", [("custom_op_one", "add(x.data[i], y.data[i])", "add(x.data[i], y.data[i]) + (i == 5)")], indirect=True
)
@pytest.mark.parametrize("expected", ["none", "of the kernel"])
def test_a_wrong_kernel_in_a_function_is_named_with_its_call(kernel: Project, tmp_path: Path, expected: str) -> None:
    """Where the expected outputs are those of the kernel, too, such as torch's, its nodes are compared nevertheless."""
    made = model(helper.make_node("wrap", ["x"], ["y"], domain="local"))
    made.opset_import.add(domain="local", version=1)
    imports = [helper.make_opsetid(domain, version) for domain, version in (("", 18), ("test.customop", 1))]
    body = [helper.make_node("Neg", ["a"], ["c"]), one("c", "b")]
    made.functions.append(helper.make_function("local", "wrap", ["a"], ["b"], body, imports))
    options = []
    if expected == "of the kernel":
        x = np.zeros((1, 4, 2), np.float32)
        y = x.copy()
        y.flat[5] = 1
        np.savez(tmp_path / "both.npz", x=x, y=y)
        options = ["--inputs", str(tmp_path / "both.npz")]
    code, text = checked(kernel, made, *options)
    assert code == 1 and wrong(text) == ["first node"], text
    assert "test.customop::CustomOpOne 'one_b' in local::wrap (gives 'y'): 1 of " in text
    assert (
        "custom: 1 test.customop::CustomOpOne (ops/custom_op_one); calls of the model's functions: 1 local::wrap"
        in text
    )
    assert ("✓ agrees" in text) == (expected == "of the kernel")


# function_own_imports/pf_ref_noimport of ../shared/cases: the function alone imports the domain of the operator.
OWN_IMPORT = """<ir_version: 8, opset_import: ["": 17, "loc": 1]>
g (float[N] x, float[N] s) => (float[N] y) { y = loc.wrap <b: float = 2.0> (x, s) }
<domain: "loc", opset_import: ["my.domain": 1, "": 17]>
wrap <b> (x, s) => (y) { y = my.domain.ScaleShift <shift: float = @b> (x, s) }"""


def test_a_kernel_whose_domain_only_a_function_imports_is_compared(tmp_path: Path) -> None:
    """At 71b51ad8 it was wrong with any kernel: the model does not import the domain 'my.domain'."""
    made = Project.copy(tmp_path, operators=())
    schema = "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor"
    made.passes("new", "--schema", schema, "--domain", "my.domain")
    fill_in(tmp_path)
    assert made.doit("codegen", "compile").returncode == 0
    code, text = checked(made, parser.parse_model(OWN_IMPORT))
    assert code == 0, text
    assert "✓ agrees            with onnx.reference and the references of this project, node by node: 1 node\n" in text
    made.replace("native/scale_shift/kernel.h", "+ summand", "- summand")
    assert made.doit("compile").returncode == 0
    code, text = checked(made, parser.parse_model(OWN_IMPORT))
    assert code == 1 and wrong(text) == ["first node"], text
    assert "my.domain::ScaleShift (gives 'y') in loc::wrap (gives 'y'): 3 of 3 elements differ" in text


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
    with edited(kernel.root / "pyproject.toml", "seconds = 3600", "seconds = 60"):
        code, text = checked(kernel, model(*CHAIN), seconds=None)  # the limit of a step
    assert code == 1
    assert wrong(text) == ["runs"]
    assert "the process did not end within 60 s and was stopped" in text
