"""`doit check` on models whose kernels compute wrong values, and the libraries that several operators share.

tests/faults/check_kernels.toml has other faults.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opmatrix.basics.errors import CompileError
from opmatrix.declaration.load import load_operator
from opmatrix.project.paths import Paths
from opmatrix.toolchain import link_together
from tests.addons.check.models import CHAIN, checked, model, one, wrong
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.ort, pytest.mark.slow]

ADD = "add(x.data[i], y.data[i])"
one_is_wrong = pytest.mark.parametrize("kernel", [("custom_op_one", ADD, f"{ADD} + (i == 5)")], indirect=True)
PAGE = Path(__file__).parents[3] / "docs/check.md"


def bare(text: str) -> list[str]:
    """Return lines without what differs between machines: milliseconds, and abbreviated paths."""
    return re.sub(r"[\d.e+-]+ ms|-[0-9a-f]{8}\b", "", text).splitlines()


def shown(command: str) -> list[str]:
    """Return the output of a command in docs/check.md."""
    _, found, rest = PAGE.read_text().partition(f"```console\n$ ./run doit check {command}\n{command}\n")
    assert found, command
    return bare(f"{command}\n" + rest.partition("```")[0])


@one_is_wrong
def test_a_wrong_kernel_in_the_middle_of_a_chain_is_named(kernel: Project) -> None:
    """Nodes after it have wrong results as well, but compute rightly from wrong inputs."""
    code, text = checked(kernel, model(*CHAIN))
    assert code == 1 and wrong(text) == ["first node"]
    text_of_page = text.replace("model.onnx\n", "chain.onnx\n", 1).replace("check/model-", "check/chain-")
    assert bare(text_of_page) == shown("chain.onnx")
    (line,) = (line for line in text.splitlines() if "first node" in line)
    assert "test.customop::CustomOpOne 'one_b': 1 of 60 elements differs beyond rtol=0.0001 atol=1e-05" in line
    assert "first at (0, 1, 0), compared in float64. Its inputs: a float32[3, 4, 5] in -" in line
    assert "further" not in line
    assert "Kernel and ops/custom_op_one/reference.py differ" in line
    alone = line.rpartition("It alone: doit check ")[2]
    code, text = checked(kernel, alone)
    assert code == 1 and wrong(text) == ["agrees", "first node"] and "1 node, custom" in text


@one_is_wrong
def test_a_wrong_kernel_in_a_function_is_named_with_its_call(kernel: Project, tmp_path: Path) -> None:
    """Where the expected outputs are those of the kernel, too, such as torch's, its nodes are compared nevertheless."""
    imports = '<domain: "local", opset_import: ["": 18, "test.customop": 1]>'
    made = model("y = local.wrap (x)", more=f"{imports} wrap (a) => (b) {{ c = Neg (a) {one('c', 'b')} }}")
    x = np.zeros((1, 4, 2), np.float32)
    np.savez(tmp_path / "both.npz", x=x, y=x + (np.arange(8).reshape(x.shape) == 5))
    code, text = checked(kernel, made, "--inputs", str(tmp_path / "both.npz"))
    assert code == 1 and wrong(text) == ["first node"], text
    assert "test.customop::CustomOpOne 'one_b' in local::wrap (gives 'y'): 1 of " in text
    custom = "custom: 1 test.customop::CustomOpOne (ops/custom_op_one)"
    assert f"{custom}; calls of the model's functions: 1 local::wrap" in text and "✓ agrees" in text


def test_a_combined_library_has_equal_bytes_and_no_path_of_the_project(project: Project) -> None:
    names = ["custom_op_one", "custom_op_two", "group_norm"]
    operators = [load_operator(project.paths, name) for name in names]
    first = link_together.run(project.paths, operators).read_bytes()
    shutil.rmtree(project.paths.combined_folder(names))
    assert link_together.run(project.paths, operators).read_bytes() == first
    assert str(project.root).encode() not in first


def test_a_library_that_cannot_be_linked_is_refused(project: Project) -> None:
    inverse, norm = (load_operator(project.paths, name) for name in ("inverse", "group_norm"))
    by_hand = replace(norm, handwritten_files=norm.handwritten_files | {"ort.cc"})
    for paths, operator, message in (
        (project.paths, inverse, "inverse has no objects: its kernel is ONNX Runtime's own"),
        (project.paths, by_hand, r"native/group_norm/ort\.cc has a RegisterCustomOps of its own"),
        (Paths(project.root, debug=True), norm, r"kernel.o is missing. Run: doit compile:group_norm"),
    ):
        with pytest.raises(CompileError, match=message):
            link_together.run(paths, [operator])
