"""`doit check` on models whose kernels compute wrong values; tests/faults/check_kernels.toml has other faults."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.addons.check.models import CHAIN, checked, model, one, wrong
from tests.support.projects import Project

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
def test_a_wrong_kernel_in_a_function_is_named_with_its_call(kernel: Project, tmp_path: Path) -> None:
    """Where the expected outputs are those of the kernel, too, such as torch's, its nodes are compared nevertheless."""
    imports = '<domain: "local", opset_import: ["": 18, "test.customop": 1]>'
    made = model("y = local.wrap (x)", more=f"{imports} wrap (a) => (b) {{ c = Neg (a) {one('c', 'b')} }}")
    x = np.zeros((1, 4, 2), np.float32)
    y = x.copy()
    y.flat[5] = 1
    np.savez(tmp_path / "both.npz", x=x, y=y)
    code, text = checked(kernel, made, "--inputs", str(tmp_path / "both.npz"))
    assert code == 1 and wrong(text) == ["first node"], text
    assert "test.customop::CustomOpOne 'one_b' in local::wrap (gives 'y'): 1 of " in text
    assert (
        "custom: 1 test.customop::CustomOpOne (ops/custom_op_one); calls of the model's functions: 1 local::wrap"
        in text
    )
    assert "✓ agrees" in text
