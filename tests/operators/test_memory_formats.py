"""An operator with elementwise=True takes torch's memory formats without a copy; a wrong fake kernel is found."""

from __future__ import annotations

import pytest

from opmatrix.project.paths import Paths
from tests.support.building import build, copy_project, registered
from tests.support.forked import forked, register
from tests.support.projects import Project, edited

pytestmark = [pytest.mark.compile, pytest.mark.torch]

NAME = "dual_residual"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """The operator, with the model of one dtype."""
    paths = copy_project(tmp_path_factory.mktemp("formats"), NAME)
    cases = paths.cases(NAME)
    cases.write_text(cases.read_text() + "\nMODELS = MODELS[:1]\n")
    build(paths, NAME)
    return paths


def test_tensors_in_one_format_are_not_copied(paths: Paths) -> None:
    def calls() -> None:
        import torch

        (op,) = registered(Project(paths.root), NAME)
        for last, shape in ((torch.channels_last, (2, 3, 4, 5)), (torch.channels_last_3d, (2, 3, 2, 4, 5))):
            x, y = torch.randn(shape), torch.randn(shape)
            a, b = x.contiguous(memory_format=last), y.contiguous(memory_format=last)
            usual = torch.contiguous_format
            for inputs, copies, expected in (
                ((x, y), 0, usual),
                ((a, b), 0, last),
                ((a, y), 1, usual),
                ((x.mT.contiguous().mT, b), 2, usual),
                ((a[:, :, 1:], b[:, :, 1:]), 2, usual),
            ):
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                    outputs = op(*inputs, 1.5)
                assert [event.name for event in profile.events()].count("aten::copy_") == copies
                for output, one, other in zip(outputs, inputs, inputs[::-1], strict=True):
                    assert torch.allclose(output, 1.5 * one - other)
                    assert output.stride() == torch.empty(output.shape, memory_format=expected).stride()

    assert forked(calls, paths.root / "calls") == ""


def test_torch_traces_the_formats_of_the_outputs(paths: Paths) -> None:
    def trace() -> None:
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        (op,) = registered(Project(paths.root), NAME)
        x, y = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
        a, b = (t.contiguous(memory_format=torch.channels_last) for t in (x, y))

        class Call(torch.nn.Module):
            def forward(self, one: torch.Tensor, other: torch.Tensor) -> list[torch.Tensor]:
                return [*op(one, other, 1.5)]

        assert {*torch.library.opcheck(op, (a, b, 1.5)).values()} == {"SUCCESS"}
        dim = torch.export.Dim
        sizes = {0: dim("N"), 1: dim("C"), 2: dim("H"), 3: dim("W")}
        for inputs in ((x, y), (a, b), (a, y)):
            with FakeTensorMode() as mode:
                fake = op(*map(mode.from_tensor, inputs), 1.5)
            assert [t.stride() for t in fake] == [t.stride() for t in op(*inputs, 1.5)]
            program = torch.export.export(Call(), inputs, dynamic_shapes=(sizes, sizes))
            assert len(program.range_constraints) == 4  # each size is still free
            assert {str(found) for found in program.range_constraints.values()} == {"VR[0, int_oo]"}

        class DataDependent(torch.nn.Module):
            def forward(self, one: torch.Tensor) -> list[torch.Tensor]:
                count = one.sum().item()
                torch._check(count >= 0)
                made = torch.ones(count, 3, 4, 5).to(memory_format=torch.channels_last)
                return [*op(made, made, 1.5)]

        program = torch.export.export(DataDependent(), (torch.ones(2, dtype=torch.int64),))
        (call,) = (node for node in program.graph.nodes if node.target is op)
        assert [t.stride() for t in call.meta["val"]] == [(60, 1, 15, 3)] * 2

    assert forked(trace, paths.root / "trace") == ""


def test_a_fake_kernel_with_other_strides_is_found(paths: Paths) -> None:
    with edited(paths.generated(NAME) / "fake.py", "return found", "return torch.contiguous_format"):
        done = register(paths.root, NAME, "--part", "schema")
    assert done.returncode == 8
    assert "with all inputs in channels_last of shape (2, 3, 4, 5) the fake kernel" in done.stderr
    assert "the fake kernel gives x_residual the strides (60, 20, 5, 1), the compiled one (60, 1, 15, 3)" in done.stderr
