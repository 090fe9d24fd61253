"""A wheel of an operator with two versions: its user exports and runs models of both."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.evolved import SINCE, evolve
from tests.support.projects import Project
from tests.wheel.shipping import SETTINGS, Environment, build

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

EXPORT = """
import sys, numpy as np, torch, my_ops
from my_ops import functional
folder, first = sys.argv[1], my_ops.onnx.domain_versions()
newest = my_ops.onnx.domain_versions(newest=True)
assert (first, newest) == ({"mydomain": 1}, {"mydomain": 3}), (first, newest)
assert [s.since_version for s in my_ops.onnx.schemas()] == [1, 3]

class Model(torch.nn.Module):
    def __init__(self, **lift):
        super().__init__()
        self.lift = lift
    def forward(self, x, groups, scale, bias):
        return functional.group_norm(x, groups, scale, bias, 1e-3, **self.lift)

names = ["x", "groups", "scale", "bias"]
inputs = torch.randn(2, 4, 3, 3), torch.tensor([2.0]), torch.ones(4), torch.zeros(4)
arrays = {n: t.numpy() for n, t in zip(names, inputs)}
for version, model, domains in ((1, Model(), {}), (3, Model(lift=0.25), newest)):
    np.savez(f"{folder}/{version}.npz", y=model(*inputs).numpy(), **arrays)
    with my_ops.onnx.symbolics(18, domains=domains):
        torch.onnx.export(model, inputs, f"{folder}/{version}-legacy.onnx", dynamo=False, opset_version=18,
                          input_names=names, custom_opsets=domains)
    table = my_ops.onnx.translation_table(18, domains=domains)
    torch.onnx.export(model, inputs, dynamo=True, opset_version=18, custom_translation_table=table, input_names=names,
                      verbose=False).save(f"{folder}/{version}-dynamo.onnx")
try:
    with my_ops.onnx.symbolics(18):
        torch.onnx.export(Model(lift=0.25), inputs, f"{folder}/no.onnx", dynamo=False, opset_version=18)
except Exception as error:
    print(error)
try:
    my_ops.onnx.translation_table(18, domains={"mydomain": 4})
except ValueError as error:
    print(error)
"""
RUN = """
import sys, numpy as np, onnx, onnxruntime, my_ops_onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(my_ops_onnxruntime.library_path())
for version in (1, 3):
    data = dict(np.load(f"{sys.argv[1]}/{version}.npz"))
    expected = data.pop("y")
    for exporter in ("legacy", "dynamo"):
        path = f"{sys.argv[1]}/{version}-{exporter}.onnx"
        model = onnx.load_model(path)
        (imported,) = (o.version for o in model.opset_import if o.domain == "mydomain")
        names = sorted(a.name for a in model.graph.node[0].attribute)
        (found,) = onnxruntime.InferenceSession(path, options).run(None, data)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
        print(version, exporter, imported, *names)
"""


def test_a_wheel_has_both_versions(tmp_path: Path) -> None:
    made = Project.copy(tmp_path / "project")
    evolve(made)
    settings = made.root / "pyproject.toml"
    text, _, rest = settings.read_text().partition("[tool.opmatrix.dist]")
    settings.write_text(text + "[tool.doit]\n" + rest.partition("[tool.doit]\n")[2] + SETTINGS)
    (made.root / "LICENSE.txt").write_text("As you like it.\n")
    environment = Environment.make(tmp_path / "fresh", build(made), behind=Path(sys.executable))
    said = environment.check("-W", "ignore", "-c", EXPORT, tmp_path)
    assert (
        f"group_norm: lift=0.25 needs version {SINCE} of 'mydomain', and the model imports 1, where it is 0.0. Export "
        "at a newer version of the domain, or leave it out"
    ) in said
    assert "group_norm is not in version 4 of 'mydomain'; it is in: 1, 2, 3" in said
    assert environment.check("-c", RUN, tmp_path).splitlines() == [
        "1 legacy 1 epsilon",
        "1 dynamo 1 epsilon",
        "3 legacy 3 epsilon lift schema_version",
        "3 dynamo 3 epsilon lift schema_version",
    ]
