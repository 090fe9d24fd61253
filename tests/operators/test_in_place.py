"""Operators that write arguments, ``Tensor(a!)`` and ``out=``, write in torch and return new tensors in a model.
tests/faults/in_place_calls.toml has calls that are dropped, or write something else.

tests/projects/in_place: `axpy` is cst::axpy_, without a result; `split_sign` is _cst::split.out, with an argument of
each kind and a new result.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opmatrix.basics.errors import DistError
from tests.support.building import registered
from tests.support.forked import forked
from tests.support.projects import Project
from tests.support.wheels import run_planted

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.verified("in_place", tmp_path_factory.mktemp("in_place"), "opsets=18")


@pytest.mark.parametrize("operator", ["axpy", "split_sign"])
def test_every_cell_is_verified(operator: str, project: Project) -> None:
    found = {name: record["outcome"] for name, record in project.records().items() if name.startswith(operator)}
    cells = ("legacy-opset18", "dynamo-opset18")
    assert found == {f"{operator}-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


def test_the_arguments_are_written(project: Project) -> None:
    """With any strides, also where an input is the same tensor or overlaps; the gradient is that of the operator."""

    def calls() -> None:
        import torch

        registered(project, "axpy", "split_sign")
        axpy_ = torch.ops.cst.axpy_
        y = torch.randn(3, 4)
        for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]):
            before, version = x.clone(), x._version
            assert axpy_(x, y, 2.0) is None
            assert torch.allclose(x, before + 2 * y) and x._version > version
        x = torch.randn(5)
        before = x.clone()
        axpy_(x, x, alpha=0.5)
        assert torch.allclose(x, 1.5 * before)
        whole = torch.arange(6.0)
        axpy_(whole[1:], whole[:-1])
        assert whole.tolist() == [0.0, 1.0, 3.0, 5.0, 7.0, 9.0]
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            axpy_(torch.zeros(1, 4).expand(3, 4), y)
        leaf = torch.randn(3, dtype=torch.float64, requires_grad=True)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            axpy_(leaf, leaf)

        def cubed(t: torch.Tensor) -> torch.Tensor:
            made = t * t
            axpy_(made, t, 3.0)
            return made * t

        assert torch.autograd.gradcheck(cubed, leaf)
        with torch.inference_mode():
            axpy_(x, x)
        compiled = torch.compile(cubed, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(leaf), cubed(leaf))

    assert forked(calls, project.root / "output") == ""


def test_out_must_fit(project: Project) -> None:
    def calls() -> None:
        import torch

        registered(project, "split_sign")
        split = torch.ops._cst.split.out
        x, calls, out = torch.tensor([[1.0, -2.0]]), torch.tensor([7]), torch.full((1, 2), 9.0)
        returned, negative = split(x, calls, 2, positive=out)
        assert returned is out and out.tolist() == [[1.0, 0.0]] and negative.tolist() == [[0.0, -2.0]]
        assert calls.tolist() == [9]
        for empty in (torch.empty(0), torch.empty(3, 0), torch.tensor([])):  # as of torch's own operators
            returned, _ = split(x, calls, positive=empty)
            assert returned is empty and torch.equal(empty, torch.tensor([[1.0, 0.0]]))

        def made(x: torch.Tensor, calls: torch.Tensor) -> torch.Tensor:
            empty = torch.empty(0)
            split(x, calls, positive=empty)
            return empty + 1

        compiled = torch.compile(made, fullgraph=True, backend="aot_eager")
        with pytest.raises(Exception, match=r"shape \(1, 2\), in a call that torch compiles or exports, got \(0,\)"):
            compiled(x, calls)

    assert forked(calls, project.root / "output") == ""


MODEL = """
import torch


class Written(torch.nn.Module):
    def forward(self, x, y):
        z = {made}
        torch.ops.cst.axpy_({target}, y, 2.0)
        calls = torch.zeros(2, dtype=torch.int64) + x.shape[0]
        out = {out}
        kept, negative = torch.ops._cst.split.out(z, calls, 3, positive=out)
        return z + 1, kept * 2, negative, out, calls


def model():
    return Written(), (torch.randn(2, 3), torch.randn({shape}))
"""


@pytest.mark.parametrize(
    ("exporter", "out"),
    [("legacy", "torch.empty_like(z)"), ("legacy", "torch.empty(0)"), ("dynamo", "torch.empty_like(z)")],
)
@pytest.mark.deep
def test_later_nodes_read_what_was_written(exporter: str, out: str, project: Project) -> None:
    """In a user's model, which ONNX Runtime runs with the results of torch."""
    (project.root / "later.py").write_text(MODEL.format(made="x * 2", target="z", shape="2, 3", out=out))
    done = project.doit("check", "later.py:model", "--exporter", exporter)
    assert "OK: " in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_the_dynamo_exporter_writes_into_views(project: Project) -> None:
    (project.root / "view.py").write_text(
        MODEL.format(made="x * 2", target="z[1]", shape="3", out="torch.empty_like(z)")
    )
    done = project.doit("check", "view.py:model", "--exporter", "dynamo")
    assert "OK: " in done.stdout, done.stdout + done.stderr


SKIPPED = "        argument.copy_(made)\n        return\n", "        {}argument.copy_(made)\n        return\n"


@pytest.mark.parametrize("fault", ["", "pass  # "], ids=["as it is", "without the copy"])
@pytest.mark.deep
def test_the_wheel_writes(fault: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run check calls both operators."""
    from opmatrix.wheel import run_unpacked

    monkeypatch.setattr(run_unpacked, "TORCH_EXPORTERS", ("legacy",))

    def run() -> str:
        plant = ("axpy/fake.py", SKIPPED[0], SKIPPED[1].format(fault))
        return run_planted(project, ("axpy", "split_sign"), plant, tmp_path)

    if not fault:
        assert re.fullmatch(r"\d cases in \d+ runs from the wheel", run())
        assert len(list(tmp_path.glob("out/*/*/torch-composed"))) == len(list(tmp_path.glob("out/*/*")))
        return
    with pytest.raises(DistError, match="axpy-plain, torch-composed: z: 6 of 6 elements differ"):
        run()
