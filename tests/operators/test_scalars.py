"""Arguments of type Scalar take every number of Python that the declared kind has, and no other; a call that passes on
something else, or a number that depends on an input of a model, is found. A dtype, a layout and a device without a
default have one legal value.

tests/projects/scalars: `damped` is sca::damped, with a default and with None, and a gradient; `shift` is
sca::shift_.Scalar, of integers, which writes its argument; `dequantized` has a dtype, a layout and a device.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import pytest

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.spec import TorchOp
from tests.support.building import registered
from tests.support.forked import forked, register
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
    with planted(project, operator, '"CompositeImplicitAutograd", "FuncTorchBatched"', '"CompositeImplicitAutograd",'):
        found = ("failed", "does not support vmap over dims of size 0")
        assert forked(lambda: check(found), project.root / "output") == ""


def test_numbers_that_the_declared_kind_does_not_have(project: Project) -> None:
    def calls() -> None:
        import torch

        registered(project, "damped", "shift")
        x, counts = torch.ones(2), torch.tensor([1])
        number, inexact = "must be a real number, got", "must be exact as a double, got 9007199254740993"
        for wrong, message in (
            (1 + 2j, f"sca::damped: factor {number} (1+2j)"),
            (2**53 + 1, f"sca::damped: factor {inexact}"),
            ("2", "Expected a value of type 'number'"),
            (torch.tensor(2.0), "Expected a value of type 'number'"),
        ):
            with pytest.raises(RuntimeError, match=re.escape(message)):
                torch.ops.sca.damped(x, wrong)
        for wrong in (2.5, float("nan"), float("inf")):
            with pytest.raises(RuntimeError, match=f"sca::shift_.Scalar: other must be an integer, got {wrong}"):
                torch.ops.sca.shift_(counts, wrong)
        assert counts.tolist() == [1]

    assert forked(calls, project.root / "output") == ""


OTHER_VALUES = {
    "dtype": ("float64", "dtype must be torch.float32, got torch.float64"),
    "layout": ("sparse_coo", "layout must be torch.strided, got torch.sparse_coo"),
    "device": ("meta", "device must be cpu, got meta"),
    "accumulated": ("int8", "accumulated must be None, got torch.int8"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("argument", OTHER_VALUES)
def test_another_dtype_layout_or_device_is_refused(argument: str, project: Project) -> None:
    """In a call, in torch.compile and by both exporters."""
    value, message = OTHER_VALUES[argument]

    def calls() -> None:
        import torch

        registered(project, "dequantized")
        right = {"dtype": torch.float32, "scale": 0.5, "layout": torch.strided, "device": "cpu", "accumulated": None}
        wrong = torch.device(value) if argument == "device" else getattr(torch, value)
        x = torch.tensor([4, -2], dtype=torch.int8)

        class Model(torch.nn.Module):
            def __init__(self, **changed: Any) -> None:
                super().__init__()
                self.given = right | changed

            def forward(self, x: torch.Tensor) -> Any:
                return torch.ops.sca.dequantized(x, **self.given)

        assert Model()(x).tolist() == [2.0, -1.0] == Model(device=torch.device("cpu", 0))(x).tolist()
        model, file = Model(**{argument: wrong}), io.BytesIO()
        attempts: tuple[Callable[[], Any], ...] = (
            lambda: model(x),
            lambda: torch.compile(model, backend="eager", fullgraph=True)(x),
            lambda: torch.onnx.export(model, (x,), file, dynamo=False, opset_version=18),  # type: ignore[arg-type]  # torch's annotation lacks files
            lambda: torch.onnx.export(model, (x,), dynamo=True, verbose=False),
        )
        for attempt in attempts:
            with pytest.raises(Exception, match="") as raised:
                attempt()
            assert f"sca::dequantized: {message}" in causes(raised.value)

    assert forked(calls, project.root / "output") == ""


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
            (x * 8).to(torch.int8), torch.float32, 0.25, torch.strided, 3, device=torch.device("cpu"), accumulated=None
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


# Numbers that depend on an input, and what an export says of them.
DEPENDENT = {
    "a size": lambda x: x.shape[0],
    "half of a size": lambda x: x.shape[0] * 0.5,
    "a value": lambda x: x[0].item(),
}


def exported(number: Any, *, dynamo: bool, **options: Any) -> Any:
    import torch

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch.ops.sca.damped(x, number(x))

    if dynamo:
        shapes = {"x": {0: torch.export.Dim("n")}}
        options |= {"dynamic_shapes": shapes, "verbose": False}
        return torch.onnx.export(Model(), (torch.ones(3),), dynamo=True, **options)
    names: dict[str, Any] = {"input_names": ["x"], "dynamic_axes": {"x": {0: "n"}}}
    file: Any = io.BytesIO()
    return torch.onnx.export(Model(), (torch.ones(3),), file, dynamo=False, opset_version=18, **names)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", DEPENDENT)
def test_the_dynamo_exporter_refuses_a_number_that_depends_on_an_input(number: str, project: Project) -> None:
    def calls() -> None:
        registered(project, "damped")
        with pytest.raises(Exception, match="") as raised:
            exported(DEPENDENT[number], dynamo=True)
        assert "sca::damped: factor must be the same for all inputs in an exported model" in causes(raised.value)

    assert forked(calls, project.root / "output") == ""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("number", ["a size", "half of a size"])
def test_the_legacy_exporter_refuses_a_size(number: str, project: Project) -> None:
    def calls() -> None:
        registered(project, "damped")
        with pytest.raises(
            RuntimeError, match="factor must be a real number, got a Tensor, which an exporter would write"
        ):
            exported(DEPENDENT[number], dynamo=False)

    assert forked(calls, project.root / "output") == ""


@pytest.mark.filterwarnings("ignore")
def test_without_the_check_the_dynamo_exporter_writes_the_traced_size(project: Project) -> None:
    """Why the check is there: the model takes any size, and has half of that of the example."""
    text = python_modules.render(load_operator(project.paths, "damped").spec)["fake.py"]
    check = 'getattr(getattr(torch, "compiler", None), "is_exporting", bool)()'
    assert check in text

    def calls() -> None:
        import torch
        from onnxscript import opset18

        def translation(x: Any, factor: float = 1.0, offset: Any = None) -> Any:
            return opset18.Mul(x, opset18.Constant(value_float=factor))

        module: dict[str, Any] = {}
        exec(text.replace(check, "False"), module)
        defined = module["define"]()
        table = {torch.ops.sca.damped_typed.default: translation}
        model = exported(DEPENDENT["half of a size"], dynamo=True, custom_translation_table=table).model
        assert defined and str(model.graph.inputs[0].shape) == "[n]"
        assert [constant.const_value.numpy().item() for constant in model.graph.initializers.values()] == [1.5]

    assert forked(calls, project.root / "output") == ""


# What is planted in the generated module that defines the operator, and what finds it.
FAULTS = {
    "the number is not passed on": ("damped", "_number(factor, float, 'factor')", "1.0", "sca::damped: y is not what"),
    "another number is passed on": (
        "shift", "alpha=_number(alpha, int, 'alpha')", "alpha=_number(other, int, 'alpha')",
        "sca::shift_.Scalar: y is not what sca::shift__Scalar_functional returns",
    ),
    "a number is not passed on": (
        "dequantized", "default(x, scale, zero_point, ", "default(x, scale, 0, ", "sca::dequantized: y is not what",
    ),
    "the legal value is refused": (
        "dequantized", "dtype != torch.float32", "dtype == torch.float32",
        "dtype must be torch.float32, got torch.float32",
    ),
    "an equal float is no int": ("shift", "found = kind(value)", "found = None", "must be an integer, got 3.0"),
}  # fmt: skip


@contextmanager
def planted(project: Project, operator: str, old: str, new: str) -> Iterator[None]:
    path = project.paths.generated(operator) / "fake.py"
    quotes = old.replace("'", '"')
    with edited(path, *((quotes, new.replace("'", '"')) if quotes in path.read_text() else (old, new))):
        yield


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_passed_on_is_checked(fault: str, project: Project) -> None:
    operator, old, new, message = FAULTS[fault]
    with planted(project, operator, old, new):
        done = register(project.root, operator, "--part", "schema")
    assert done.returncode != 0
    assert message in done.stderr


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


def causes(error: BaseException) -> str:
    """Return the messages of an error and of those that caused it."""
    return f"{error}\n{causes(error.__cause__)}" if error.__cause__ else str(error)
