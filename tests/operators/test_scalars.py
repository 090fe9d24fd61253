"""Arguments of type Scalar take every number of Python that the declared kind has. A dtype, a layout and a device
without a default have one legal value. tests/faults/scalars.toml has the faults.

tests/projects/scalars: `damped` is sca::damped, with a default and with None, and a gradient; `shift` is
sca::shift_.Scalar, of integers, which writes its argument; `dequantized` has a dtype, a layout and a device.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict, replace
from typing import Any

import pytest

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.spec import TorchOp
from tests.support.building import registered
from tests.support.forked import forked
from tests.support.projects import Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("scalars", tmp_path_factory.mktemp("scalars"), "opsets=18")


@pytest.mark.parametrize("operator", ["damped", "shift", "dequantized"])
def test_every_cell_is_verified(operator: str, project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items() if name.startswith(operator)}
    cells = ("legacy-opset18", "dynamo-opset18")
    assert found == {f"{operator}-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


def test_numbers_of_python(project: Project) -> None:
    """An int, a float or a bool, each with the value that it has; with torch's transforms."""

    def calls() -> None:
        import torch

        registered(project, "damped", "shift")
        damped, shift_ = torch.ops.sca.damped, torch.ops.sca.shift_.Scalar
        x = torch.randn(4, dtype=torch.float64)
        for number in (2, 0.5, True, False, -3, 2**24, float("inf")):
            assert torch.equal(damped(x, number), x * number)
            assert torch.equal(damped(x, offset=number), x + number)
        assert damped(x, float("nan")).isnan().all()
        assert torch.equal(damped(x), x) and torch.equal(damped(x, offset=None), x)
        counts = torch.tensor([5, -7])
        for number in (2, 2.0, True, 2**53 + 1, -(2**63)):
            written = counts.clone()
            assert shift_(written, number) is written
            assert written.tolist() == [(5 + int(number)), -7 + int(number)] or number == -(2**63)
        written = counts.clone()
        shift_(written, 2, alpha=3.0)
        assert written.tolist() == [11, -1]

        leaf = torch.randn(3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(lambda t: damped(t, 3, offset=2), leaf)
        assert torch.equal(torch.vmap(lambda t: damped(t, 2))(x.reshape(2, 2)), x.reshape(2, 2) * 2)
        compiled = torch.compile(lambda t, a: damped(t, a, offset=1), fullgraph=True, backend="aot_eager")
        for number in (2, 2.5, True, 3):
            assert torch.equal(compiled(leaf, number), damped(leaf, number, offset=1))
        sized = torch.compile(lambda t: damped(t, t.shape[0], offset=t.shape[0] * 0.5), fullgraph=True,
                              backend="aot_eager", dynamic=True)  # fmt: skip
        for size in (3, 4, 7):
            assert torch.equal(sized(torch.ones(size)), torch.full((size,), 1.5 * size))

    assert forked(calls, project.root / "output") == ""


@pytest.mark.parametrize("operator", ["damped", "shift"])
def test_torch_vmap_takes_the_rule_of_the_operator_of_the_library(operator: str, project: Project) -> None:
    """Planted: torch's own loop, which has no outputs for a batch without samples."""

    def check(expected: tuple[str, str]) -> None:
        from opmatrix.torch_checks import compat

        registered(project, operator)
        given = load_operator(project.paths, operator)
        prepared = compat.prepare(given, None)
        row = compat.row("torch.vmap", compat.CHECKS["torch.vmap"], prepared)
        outcome, detail = expected
        assert row.outcome == outcome and detail in row.detail, row.detail

    works = ("works", "one call per sample")
    assert forked(lambda: check(works), project.root / "output") == ""
    keys = '"CompositeImplicitAutograd", "FuncTorchBatched"'
    with edited(project.paths.generated(operator) / "fake.py", keys, '"CompositeImplicitAutograd",'):
        found = ("failed", "does not support vmap over dims of size 0")
        assert forked(lambda: check(found), project.root / "output") == ""


def test_an_argument_with_one_value_beside_one_that_is_written(project: Project) -> None:
    """The check of `register` and the run check of a wheel give the legal values."""
    spec = load_operator(project.paths, "dequantized").spec
    schema = (
        "sca::dequantized.out(Tensor x, ScalarType d, float scale, int zero_point, *, Device on, Tensor(a!) y) -> ()"
    )
    spec = replace(spec, torch=TorchOp(name="sca::dequantized", schema=schema, fixed={"d": "float32", "on": "cpu"}))

    def calls() -> None:
        import torch

        from opmatrix.signature.signature import written_call
        from opmatrix.spec import Case, Model
        from opmatrix.torch_ops.call import ComposedCall
        from opmatrix.wheel import use_unpacked

        model = Model(name="m", attributes={"scale": 1.0, "zero_point": 0}, cases=(Case(name="c", inputs={}),))
        module: dict[str, Any] = {}
        exec(python_modules.render(spec)["fake.py"], module)
        defined, x = module["define"](), torch.ones(2, dtype=torch.int8)
        assert defined and ComposedCall(spec, model)(x).tolist() == [0.0, 0.0]
        composed = asdict(written_call(spec, dict(model.attributes)))
        made = {"arguments": [0], "composed": composed, "generators": {}}
        (y,) = use_unpacked.composed({"composed": "sca::dequantized.out"}, made, [x], [torch.ones(2)])
        assert y.tolist() == [0.0, 0.0]

    assert forked(calls, project.root / "output") == ""


MODEL = """
import torch


class Damped(torch.nn.Module):
    def forward(self, x):
        codes = torch.ops.sca.dequantized(
            (x * 8).to(torch.int8), torch.float32, 0.25, torch.strided, 3, device=torch.device("cpu:0"),
            accumulated=None,
        )
        y = torch.ops.sca.damped(x, 2) + torch.ops.sca.damped.default(x, True, offset=x.dim())
        counts = torch.zeros(2, dtype=torch.int64) + x.shape[0]
        torch.ops.sca.shift_(counts, 3.0, alpha=2)
        return y, counts, codes


def model():
    return Damped(), (torch.randn(2, 3),)
"""


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.deep
def test_a_model_of_a_user(exporter: str, project: Project) -> None:
    (project.root / "user.py").write_text(MODEL)
    done = project.doit("check", "user.py:model", "--exporter", exporter)
    assert "OK: " in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


@pytest.mark.filterwarnings("ignore")
def test_without_the_check_the_dynamo_exporter_writes_the_traced_size(project: Project) -> None:
    """Why the check is there: the model takes any size, and has half of that of the example."""
    text = python_modules.render(load_operator(project.paths, "damped").spec)["fake.py"]
    check = 'getattr(getattr(torch, "compiler", None), "is_exporting", bool)()'
    assert check in text

    def calls() -> None:
        import torch
        from onnxscript import opset18

        class Model(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> Any:
                return torch.ops.sca.damped(x, x.shape[0] * 0.5)

        def translation(x: Any, factor: float = 1.0, offset: Any = None) -> Any:
            return opset18.Mul(x, opset18.Constant(value_float=factor))

        module: dict[str, Any] = {}
        exec(text.replace(check, "False"), module)
        defined = module["define"]()
        table = {torch.ops.sca.damped_typed.default: translation}
        shapes = {"x": {0: torch.export.Dim("n")}}
        options: dict[str, Any] = {"custom_translation_table": table, "dynamic_shapes": shapes, "verbose": False}
        model: Any = torch.onnx.export(Model(), (torch.ones(3),), dynamo=True, **options).model  # type: ignore[union-attr]  # no None with dynamo
        assert defined and str(model.graph.inputs[0].shape) == "[n]"
        assert [constant.const_value.numpy().item() for constant in model.graph.initializers.values()] == [1.5]

    assert forked(calls, project.root / "output") == ""


def test_overloads_that_are_composed_share_a_name(project: Project) -> None:
    """The legacy exporter gets the operator of the library of each, whichever was registered first."""
    spec = load_operator(project.paths, "damped").spec
    schema = "sca::damped.out(Tensor x, Scalar factor, Scalar? offset, *, Tensor(a!) y) -> Tensor(a!)"
    written = replace(spec, torch=TorchOp(name="sca::damped", schema=schema))

    def calls() -> None:
        import torch

        warnings.simplefilter("ignore")  # torch.jit is deprecated

        class Both(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> Any:
                y = torch.empty_like(x)
                torch.ops.sca.damped.out(x, 2, None, y=y)
                return torch.ops.sca.damped(y, 2) + torch.ops.sca.damped.default(x, 2)

        defined = []
        for one in (spec, written):
            module: dict[str, Any] = {}
            exec(python_modules.render(one)["fake.py"], module)
            defined.append(module["define"]())
        nodes = str(torch.jit.trace(Both(), torch.ones(3), check_trace=False).graph)  # type: ignore[no-untyped-call]  # torch has no annotations there
        assert nodes.count("sca::damped_typed(") == 2 and nodes.count("sca::damped_out_functional(") == 1, nodes
        assert "sca::damped(" not in nodes

    assert forked(calls, project.root / "output") == ""
