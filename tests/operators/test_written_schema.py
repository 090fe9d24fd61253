"""Operators with torch schemas of their owners pass all gates, and a call or a node with another value is refused.

tests/projects/schemas: `written` has attributes ahead of tensors, lists with lengths, names of keywords and arguments
after the star; `rows` is an overload of the same torch operator, with a gradient.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.search.invalid_calls import Call, valid_call
from opmatrix.toolchain import compile
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("schemas", tmp_path_factory.mktemp("schemas"), "opsets=18")


@pytest.mark.parametrize("operator", ["rows", "written"])
def test_every_cell_is_verified(operator: str, project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items() if name.startswith(operator)}
    cells = ("legacy-opset18", "dynamo-opset18")
    assert found == {f"{operator}-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


def test_callers_of_the_original_are_served(project: Project) -> None:
    """By position and by name, with the defaults of the schema, and with one int for a list."""
    paths = project.paths
    written, rows = load_operator(paths, "written"), load_operator(paths, "rows")

    def calls() -> None:
        import torch

        from opmatrix.torch_ops import load

        for operator in (written, rows):
            load.load(paths, operator)
        pool = torch.ops.schemas.pool
        x, weight = torch.randn(4, 6), torch.randn(6)
        by_position = pool(0.5, x, [2, 2], "zero", [1, 1], None, weight=weight)
        names = {"level": 0.5, "self": x, "size": [2, 2], "from": "zero", "weight": weight}
        by_name = pool.default(**names, stride=1)
        assert all(torch.equal(a, b) for a, b in zip(by_position, by_name, strict=True))
        shifted = pool.default(**names, shift=torch.ones(1), dim=0)
        torch.testing.assert_close(shifted[0], by_name[0] + 1)
        assert shifted[1].shape == (1, 6)
        y = x.double().requires_grad_()
        out = pool.rows(2.0, y, y, y, signed=True)
        assert torch.equal(out, 2 * y * y - y)
        with pytest.raises(RuntimeError, match=re.escape("written: stride must have 2 items, got 3")):
            pool(0.5, x, [2, 2], "zero", [1, 1, 1], weight=weight)

    assert forked(calls, project.root / "output") == ""


def test_a_list_of_another_length_is_refused_everywhere(project: Project) -> None:
    paths, operator = project.paths, load_operator(project.paths, "written")
    right = valid_call(operator)
    given = {**right.model.attributes, "window": (2, 2, 2)}
    wrong = Call(model=type(right.model)(**{**vars(right.model), "attributes": given}), inputs=right.inputs)
    message = "written: window must have 2 items, got 3"

    def in_torch() -> None:
        import torch

        from opmatrix.export.generated_modules import load_generated
        from opmatrix.torch_checks.invalid_calls import call
        from opmatrix.torch_ops import load
        from opmatrix.torch_ops.call import torch_call

        loaded = load.load(paths, operator)
        with pytest.raises(RuntimeError, match=message):
            call(operator, loaded.overload, wrong)
        tensors = [torch.from_numpy(a) if isinstance(a, np.ndarray) else None for a in wrong.inputs]
        positional, named = torch_call(operator.spec, wrong.model, tensors)
        with pytest.raises(RuntimeError, match=message):
            load_generated(paths, "written").fake.fake(*positional, **named)

    def in_onnx_runtime() -> None:
        from opmatrix.ort_checks.fuzz import Fuzz
        from opmatrix.ort_checks.sessions import OrtSessions, RefusedError

        with pytest.raises(RefusedError, match=message):
            Fuzz(operator, OrtSessions(paths.ort_library("written"))).run(wrong)

    assert forked(in_torch, project.root / "output") == ""
    assert forked(in_onnx_runtime, project.root / "output") == ""


# A value of an argument with one legal value, and what torch prints of it.
CONSTANTS = {
    "dtype": ("torch.float64", "None"), "layout": ("torch.strided", "None"), "device": ("torch.device('cpu')", "None"),
    "pin_memory": ("False", "None"), "memory_format": ("torch.contiguous_format", "None"),
    "generator": ("torch.Generator()", "None"), "copies": ("2", "1"), "inplace": ("True", "False"),
    "extra": ("2.0", "1.0"),
}  # fmt: skip


def test_an_argument_with_one_legal_value_takes_no_other(project: Project) -> None:
    """In torch, its fake kernel and both exporters; the stable ABI carries no Scalar, which torch says itself."""
    paths, operator = project.paths, load_operator(project.paths, "rows")

    def calls() -> None:
        import torch

        from opmatrix.export.generated_modules import load_generated
        from opmatrix.torch_ops import load

        load.load(paths, operator)
        fake = load_generated(paths, "rows").fake.fake
        rows, x = torch.ops.schemas.pool.rows, torch.ones(2, 3, dtype=torch.float64)
        for name, (value, legal) in CONSTANTS.items():
            wrong = {name: eval(value, {"torch": torch})}
            with pytest.raises(RuntimeError, match=f"rows: {name} must be {legal}, got another value"):
                rows(2.0, x, x, **wrong)
            with pytest.raises(RuntimeError, match=f"rows: {name} must be {legal}, got "):
                fake(2.0, x, x, **wrong)
            right = {name: eval(legal)}
            assert torch.equal(rows(2.0, x, x, **right), fake(2.0, x, x, **right).fill_(2.0))
        with pytest.raises(RuntimeError, match="Scalar"):
            rows(2.0, x, x, scalar=1.0)

    assert forked(calls, project.root / "output") == ""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("dtype=torch.float64", "rows: dtype must be None, got "),
        ("copies=2", "rows: copies must be 1, got 2"),
        ("inplace=True", "rows: inplace must be False, got True"),
    ],
)
@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
def test_no_exporter_drops_another_value(exporter: str, given: str, message: str, project: Project) -> None:
    """Where the operator itself does not refuse it: it is defined without its compiled library."""

    def export() -> None:
        import torch

        from opmatrix.basics.errors import ExportError
        from opmatrix.export.exporter_warnings import collected
        from opmatrix.export.generated_modules import load_generated
        from opmatrix.lowering import dynamo, legacy
        from opmatrix.torch_ops import aten_overloads

        operator = load_operator(project.paths, "rows")
        generated = load_generated(project.paths, "rows")
        library = generated.fake.new_library()
        library.define(generated.fake.SCHEMA)
        library.impl("pool.rows", lambda factor, weight, x, *rest, **named: x.clone(), "CompositeExplicitAutograd")
        lowered, versions = generated.lowered("custom"), {"test.schemas": 1}
        keywords = eval(f"dict({given})", {"torch": torch})

        class Model(torch.nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return torch.ops.schemas.pool.rows(2.0, x, x, **keywords)

        inputs = (torch.ones(2, 3, dtype=torch.float64),)
        try:
            if exporter == "legacy":
                with collected(), legacy.registered(lowered, 18, versions, ["schemas::pool"]):
                    torch.onnx.export(
                        Model().eval(), inputs, "other.onnx", dynamo=False, opset_version=18, custom_opsets=versions
                    )
            else:
                overloads = aten_overloads.overloads(operator.spec)
                table = dynamo.table(lowered, 18, versions, overloads)
                with collected():
                    torch.onnx.export(
                        Model().eval(), inputs, dynamo=True, opset_version=18, custom_translation_table=table
                    )
        except Exception as error:
            cause: BaseException | None = error
            while cause and not isinstance(cause, ExportError):
                cause = cause.__cause__ or cause.__context__
            assert cause and str(cause).startswith(message), error
        else:
            raise AssertionError("nothing was raised")

    assert forked(export, project.root / "output") == ""


def test_a_size_that_the_model_computes_is_no_attribute(project: Project) -> None:
    """torch.export traces an operator with SymInt for a dynamic size, and no node can hold that."""

    def export() -> None:
        import torch

        from opmatrix.export.exporter_warnings import collected
        from opmatrix.export.generated_modules import load_generated
        from opmatrix.lowering import dynamo
        from opmatrix.torch_ops import aten_overloads

        operator, generated = load_operator(project.paths, "written"), load_generated(project.paths, "written")
        defined = generated.fake.define()

        class Model(torch.nn.Module):
            def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
                sums, _ = torch.ops.schemas.pool(0.5, x, [x.shape[0] - 3, 2], "zero", weight=weight)
                return sums

        table = dynamo.table(
            generated.lowered("custom"), 18, {"test.schemas": 1}, aten_overloads.overloads(operator.spec)
        )
        with collected():
            dynamic = ({0: torch.export.Dim("rows", min=4, max=100)}, {})
            program = torch.export.export(Model().eval(), (torch.ones(5, 6), torch.ones(6)), dynamic_shapes=dynamic)
            with pytest.raises(torch.onnx.errors.OnnxExporterError) as raised:
                torch.onnx.export(program, dynamo=True, opset_version=18, custom_translation_table=table, verbose=False)
        cause: BaseException = raised.value
        while cause.__cause__:
            cause = cause.__cause__
        assert str(cause).startswith("written: size is a number that the model computes")
        del defined

    assert forked(export, project.root / "output") == ""


def test_the_legacy_exporter_tells_overloads_by_their_arguments(project: Project) -> None:
    """A node of TorchScript does not name its overload."""
    (project.root / "both.py").write_text(
        "import torch\n\n\n"
        "class Both(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        y, _ = torch.ops.schemas.pool(0.5, x, [2, 2], 'zero', weight=torch.ones(6, dtype=x.dtype))\n"
        "        return torch.ops.schemas.pool.rows(2.0, y, y)\n\n\n"
        "def model():\n"
        "    return Both(), (torch.ones(5, 6, dtype=torch.float64),)\n"
    )
    done = project.doit("check", "both.py:model", "--exporter", "legacy")
    assert "OK: " in done.stdout, done.stdout + done.stderr


def test_the_classic_binding_computes_the_same(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the C++ headers of the installed torch, as for a torch before 2.9."""
    monkeypatch.setattr(compile, "is_classic", lambda spec, torch: True)
    for name in ("written", "rows"):
        operator = load_operator(project.paths, name)
        compile.run(project.paths, operator, torch=Path(sys.prefix))

        def kernel(name: str = name) -> None:
            from opmatrix.project.settings import installed
            from opmatrix.torch_checks import register as stage
            from opmatrix.torch_ops import load

            load.is_classic = lambda spec, torch: True
            assert installed().torch
            assert stage._kernel(project.paths, load_operator(project.paths, name))

        assert forked(kernel, project.root / "output") == ""
