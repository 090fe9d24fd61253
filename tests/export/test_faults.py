"""Faults around a lowering: in the exporter's arguments, in the rest of another export, in the fake kernel.

Each export runs in a child process, as in the pipeline: registrations must not leak from one to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from opmatrix.basics.files import write_text
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = pytest.mark.torch

LEGACY = Cell(torch="2.13", exporter="legacy", opset=20, ort="1.31")
DYNAMO = Cell(torch="2.13", exporter="dynamo", opset=20, ort="1.31")
OPERATORS = ("dual_residual", "group_norm", "inverse")


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """Import and build in this process what all children need."""
    from opmatrix.export import exporters

    exporters.warm_up()


@pytest.fixture
def made(tmp_path: Path) -> Project:
    """A project with the Python part of the generated code, and the first model of each operator."""
    project = Project.copy(tmp_path / "project", operators=OPERATORS)
    for name in OPERATORS:
        for file, text in python_modules.render(load_operator(project.paths, name).spec).items():
            write_text(project.paths.generated(name) / file, text)
        cases = project.paths.cases(name)
        cases.write_text(cases.read_text() + "\nMODELS = MODELS[:1]\n")
    return project


def export(made: Project, name: str, cell: Cell, before: Callable[[], object] = lambda: None) -> str:
    """Export in a child, which first calls `before`; return the message of its error, or ""."""
    from opmatrix.export import write_models as export

    operator = load_operator(made.paths, name)

    def work() -> None:
        before()
        export.run(made.paths, operator, lowering="custom", cell=cell)

    return forked(work, made.root / "output")


def calling(change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> Callable[[], object]:
    """Return a function that changes the keyword arguments of torch.onnx.export."""
    import torch

    real = torch.onnx.export

    def called(*given: Any, **named: Any) -> Any:
        return real(*given, **change(named))

    return mock.patch.object(torch.onnx, "export", called).start


def without(name: str) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
    return lambda named: {key: value for key, value in named.items() if key != name}


@pytest.mark.parametrize("cell", [LEGACY, DYNAMO], ids=str)
def test_a_project_without_faults_exports(cell: Cell, made: Project) -> None:
    assert [export(made, name, cell) for name in OPERATORS] == ["", "", ""]


def test_the_legacy_exporter_keeps_shapes_only_if_they_are_set(made: Project) -> None:
    """As with the tutorial's symbolic function, which sets no type."""
    from opmatrix.lowering import legacy

    message = export(made, "dual_residual", LEGACY, mock.patch.object(legacy, "set_types", lambda *given: None).start)
    shown = "output 'y_residual' has the shape ('cstDualResidualy_residual_dim_0', "
    assert shown in message
    assert "declared: (1, 3, 4, 5). A static size is lost: the symbolic must call setType" in message


@pytest.mark.parametrize("cell", [LEGACY, DYNAMO], ids=str)
def test_a_lowering_may_return_a_list_or_a_tuple(cell: Cell, made: Project) -> None:
    made.replace("build/generated/dual_residual/lowering.py", "return g.op(", "return list(g.op(")
    made.replace("build/generated/dual_residual/lowering.py", "outputs=2)", "outputs=2))")
    assert export(made, "dual_residual", cell) == ""


def test_the_legacy_exporter_without_custom_opsets(made: Project) -> None:
    message = export(made, "group_norm", LEGACY, calling(without("custom_opsets")))
    assert "domain 'mydomain' is imported at version 1, declared: 2. Pass it in custom_opsets= (legacy), or" in message


def test_a_translation_without_the_domain_version(made: Project) -> None:
    """custom_opsets= does not help: the dynamo exporter ignores it."""
    from opmatrix.lowering import dynamo

    table = dynamo.table

    def unversioned(lowered: Any, opset: int, versions: Any, overloads: Any) -> Any:
        return table(lowered, opset, {}, overloads)

    message = export(made, "group_norm", DYNAMO, mock.patch.object(dynamo, "table", unversioned).start)
    assert "domain 'mydomain' is imported at version 1, declared: 2. Pass it in" in message
    assert "as the since version of the translation's schema (dynamo)" in message


def test_a_symbolic_function_at_a_newer_opset(made: Project) -> None:
    """For gelu, the exporter would silently use torch's symbolic function of a lower opset: a gate refuses it."""
    message = export(made, "group_norm", LEGACY, calling(lambda named: named | {"opset_version": 18}))
    assert "No symbolic of mynamespace::custom_group_norm is registered at opset 18 or below: register it at" in message


def test_the_message_is_one_sentence_and_the_log_has_the_graph(made: Project) -> None:
    message = export(made, "group_norm", LEGACY, calling(lambda named: named | {"opset_version": 18}))
    assert message.startswith("group_norm-custom-seed@torch2.13-legacy-opset20: the legacy exporter: No symbolic of ")
    assert "graph(" not in message and "Torch IR" not in message
    log = (made.root / "output").read_text()
    assert "# Torch IR graph at exception: graph(" in log and all(line.startswith("# ") for line in log.splitlines())


@pytest.mark.parametrize("cell", [LEGACY, DYNAMO], ids=str)
def test_another_opset_than_requested(cell: Cell, made: Project) -> None:
    from opmatrix.lowering import legacy

    register = legacy.register
    mock_register = mock.patch.object(legacy, "register", lambda lowered, opset, *more: register(lowered, 18, *more))

    def before() -> None:
        mock_register.start()
        calling(lambda named: named | {"opset_version": 18})()

    message = export(made, "group_norm", cell, before)
    assert "opset 18 was written, asked for: 20. The exporter or its version converter chose another one" in message


def test_the_default_exporter_is_not_the_legacy_one(made: Project) -> None:
    """torch 2.9 changed the default: a script without dynamo= does not use its symbolic functions."""
    message = export(made, "group_norm", LEGACY, calling(without("dynamo")))
    assert message.startswith("group_norm-custom-seed@torch2.13-legacy-opset20: ")
    assert "it is the default since torch 2.9, so always pass dynamo=" in message, message


def test_an_export_without_the_translation_table(made: Project) -> None:
    message = export(made, "group_norm", DYNAMO, calling(without("custom_translation_table")))
    assert message.startswith("group_norm-custom-seed@torch2.13-dynamo-opset20: ")
    assert ": the dynamo exporter: No translation of mynamespace.custom_group_norm.default was given: " in message
    assert "put it into the translation table (custom_translation_table=), keyed by the overload" in message
    assert "Next steps" not in message and "Next steps" in (made.root / "output").read_text()


def test_a_symbolic_function_of_another_export(made: Project) -> None:
    def left() -> None:
        import torch

        def add(g: Any, x: Any, y: Any, alpha: Any) -> Any:
            return g.op("left::Add", x, y)

        torch.onnx.register_custom_op_symbolic("aten::add", add, 20)  # type: ignore[attr-defined]

    message = export(made, "inverse", LEGACY, left)
    assert "unexpected nodes left::Add beside com.microsoft::Inverse. Take them out of the lowering" in message
    assert "a symbolic or translation of another operator is still registered: export in another process" in message


def test_a_missing_fake_kernel(made: Project) -> None:
    made.replace("build/generated/group_norm/fake.py", "    register_fake(library)\n", "")
    message = export(made, "group_norm", DYNAMO)
    assert "mynamespace.custom_group_norm.default has no fake kernel: register one with torch.library" in message, (
        message
    )


def test_a_fake_kernel_that_is_wrong_in_its_second_output(made: Project) -> None:
    fake = made.paths.generated("dual_residual") / "fake.py"
    text = fake.read_text()
    line = next(line for line in text.splitlines() if line.startswith("    y_residual = "))
    fake.write_text(text.replace(line, "    y_residual = y.new_empty((*y.shape, 1))"))
    message = export(made, "dual_residual", DYNAMO)
    assert "output 'y_residual' has the shape (1, 3, 4, 5, 1), declared: (1, 3, 4, 5)" in message
    assert "'x_residual'" not in message
