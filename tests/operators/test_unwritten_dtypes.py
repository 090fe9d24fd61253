"""A dtype that one exporter does not write: its cases are unsupported there, and the others are verified."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import Project, replace_in

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

MODEL = """
from opmatrix.spec import Values

SMALL = Model(
    name="small", types={"T": "uint16"}, cases=(Case(name="small", inputs={"x": Values(values=(0, 7, 65535))}),)
)
MODELS = (*MODELS, SMALL)
"""


@pytest.mark.deep
def test_a_dtype_that_one_exporter_does_not_write(tmp_path: Path) -> None:
    project = Project.copy(tmp_path, operators=())
    project.passes("new", "--schema", "my::same(Tensor x) -> Tensor", "--domain", "my.domain")
    spec, cases = (project.root / f"ops/same/{name}.py" for name in ("spec", "cases"))
    replace_in(spec, '("float32", "float64")', '("float32", "float64", "uint16")')
    replace_in(
        spec,
        '            "float64": Tol',
        '            "uint16": Tolerance(rtol=0.0, atol=0.0),\n            "float64": Tol',
    )
    cases.write_text(cases.read_text() + MODEL)
    done = project.passes("opsets=18")
    found = project.records()
    for exporter, outcome in (("legacy", "unsupported"), ("dynamo", "verified")):
        record = found[f"same-custom@torch2.13-{exporter}-opset18-ort1.31"]
        results = {case["case"]: case for case in record["cases"]}
        assert record["outcome"] == "verified" and results["small"]["outcome"] == outcome
        assert {case["outcome"] for name, case in results.items() if name != "small"} == {"verified"}
    assert "the legacy exporter of torch 2.13 writes no uint16" in done.stdout
