"""`doit dist` exports a model whose dynamic axes follow from each other, as R + 1 from R."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.projects import ROOT, Project, replace_in
from tests.wheel.shipping import wheel_of

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

SETTINGS = '\n[tool.opmatrix.dist]\nname = "tied_ops"\nversion = "1.0.0"\nlicense = "Apache-2.0"\n'


def test_one_dynamic_axis_follows_from_another(tmp_path: Path) -> None:
    made = Project.copy(tmp_path, operators=())
    for part in ("ops", "native"):
        shutil.copytree(ROOT / "tests/projects/tied" / part / "csr_times", tmp_path / part / "csr_times")
    settings = tmp_path / "pyproject.toml"
    text, _, rest = settings.read_text().partition("[tool.opmatrix.dist]")
    settings.write_text(text + "[tool.doit]\n" + rest.partition("[tool.doit]\n")[2] + SETTINGS)
    # A factor of each row: its axis R is related to the axis R + 1 of the offsets.
    op = tmp_path / "ops/csr_times"
    factor = '        Input(name="factor", type="float64", dims=("R",), values=ValueRule(finite=True)),\n'
    replace_in(op / "spec.py", "    inputs=(\n", f"    inputs=(\n{factor}")
    replace_in(op / "reference.py", "csr_times(x", "csr_times(factor: Floats, x")
    replace_in(op / "reference.py", "return y\n", "return factor * y\n")
    replace_in(op / "cases.py", '{"x": ("C",)', '{"factor": ("R",), "x": ("C",)')
    for size, old in ((5, '"x": Random(shape=(3,))'), (6, '"x": Random(shape=(5,))')):
        replace_in(op / "cases.py", old, f'"factor": Random(shape=({size},)), {old}')
    kernel = tmp_path / "native/csr_times/kernel.h"
    replace_in(kernel, "void csr_times(", "void csr_times(TensorView<const double> factor, ")
    scaled = "  for (row = 0; row < y.numel(); ++row) y.data[row] *= factor.data[row];\n"
    replace_in(kernel, "}\n\n}  // namespace", f"{scaled}}}\n\n}}  // namespace")
    made.passes("dist")
    assert wheel_of(made).name.startswith("tied_ops-1.0.0-")
