"""Skipping torch's decomposition gives the same bytes, and happens only where there is nothing to decompose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from opmatrix.basics.files import write_text
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.spec import Lowering
from tests.support.forked import forked
from tests.support.projects import Project

pytestmark = [pytest.mark.torch, pytest.mark.slow]

CELL = Cell(torch="2.13", exporter="dynamo", opset=20, ort="1.31")


@contextmanager
def never(*arguments: object) -> Iterator[bool]:
    yield False


@pytest.mark.parametrize(
    ("name", "lowering"),
    [("group_norm", "custom"), ("group_norm", "decomposed"), ("gelu", "custom"), ("nms", "custom")],
)
def test_models_have_the_same_bytes(name: str, lowering: Lowering, tmp_path: Path) -> None:
    from opmatrix.export import dynamo_exporter, write_models

    made = Project.copy(tmp_path / "project", operators=[name])
    operator = load_operator(made.paths, name)
    for file, text in python_modules.render(operator.spec).items():
        write_text(made.paths.generated(name) / file, text)
    written = []
    for skipped in (dynamo_exporter.skipped, never):

        def work(skipped: object = skipped) -> None:
            with mock.patch.object(dynamo_exporter, "skipped", skipped):
                for each in dict.fromkeys(("custom", lowering)):  # a decomposed export gives the custom models a body
                    write_models.run(made.paths, operator, lowering=each, cell=CELL)

        assert forked(work, tmp_path / "output") == ""
        folder = made.paths.manifest(name, lowering, CELL).parent
        written.append({path.name + path.parent.name: path.read_bytes() for path in folder.rglob("*.onnx")})
    assert written[0] == written[1] != {}


def test_a_program_with_other_operators_is_decomposed() -> None:
    import torch

    from opmatrix.export import dynamo_exporter

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.gelu(x) + x

    program = torch.export.export(Model(), (torch.zeros(2),))
    gelu, add = torch.ops.aten.gelu.default, torch.ops.aten.add.Tensor
    for translated, expected in (((), False), ((gelu,), False), ((gelu, add), True)):
        with dynamo_exporter.skipped(program, translated) as skipped:
            assert skipped is expected


@pytest.mark.parametrize("reads_a_size", [False, True], ids=["only asserted", "read"])
def test_assertions_of_sizes_do_not_count_but_sizes_that_are_read_do(*, reads_a_size: bool) -> None:
    """torch.export asserts that a size which only a kernel knows is not negative."""
    import torch

    from opmatrix.export import dynamo_exporter

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            found = torch.ops.aten.nonzero.default(x)
            return (found, found.shape[0]) if reads_a_size else found

    def targets() -> list[object]:
        return [node.target for node in program.graph.nodes if node.op == "call_function"]

    program = torch.export.export(Model(), (torch.zeros(3),))
    before, (nonzero, size) = targets(), (torch.ops.aten.nonzero.default, torch.ops.aten.sym_size.int)
    assert torch.ops.aten._assert_scalar.default in before and size in before
    with dynamo_exporter.skipped(program, ()) as skipped:
        assert not skipped and targets() == before, "torch decomposes it, so it stays as it is"
    with dynamo_exporter.skipped(program, (nonzero,)) as skipped:
        assert skipped is not reads_a_size
        assert targets() == (before if reads_a_size else [nonzero])
    program.graph.lint()
