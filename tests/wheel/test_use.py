"""Use of a wheel: import, train, export and run, in environments without opmatrix."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.projects import ROOT
from tests.wheel.shipping import MODEL, Environment, other_python

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]


def test_the_environment_has_no_opmatrix(fresh: Environment) -> None:
    done = fresh.run("-c", "import pipeline")
    assert "No module named 'pipeline'" in done.stderr
    where = fresh.check("-c", "import my_ops; print(my_ops.__file__, my_ops.library_path())").split()
    assert not [path for path in where if Path(path).is_relative_to(ROOT)]


def test_a_model_is_trained_exported_and_run(fresh: Environment, exported: Path) -> None:
    assert "ran 6 models" in fresh.check(MODEL, "run", exported)


def test_onnx_runtime_alone_needs_no_torch(fresh: Environment) -> None:
    """Neither if torch is installed but not imported, nor if it is missing."""
    heavy = ("torch", "onnx", "onnxruntime", "numpy")
    script = f"import sys, my_ops_onnxruntime as m; m.library_path(); print([n for n in {heavy} if n in sys.modules])"
    assert fresh.check("-c", script) == "[]\n"
    without = (
        "import importlib.util as u, sys; real = u.find_spec; u.find_spec = lambda n, *a: None if n == 'torch' else "
        "real(n, *a); sys.modules['torch'] = None; import my_ops; print(my_ops.library_path(), my_ops.unavailable)"
    )
    assert "libmy_ops_ort.so {}" in fresh.check("-c", without)


def test_the_wheel_has_types(fresh: Environment, tmp_path: Path) -> None:
    """mypy sees the names and types of everything that the wheel offers, and a wrong call."""
    (tmp_path / "use.py").write_text(
        "import torch\n"
        "import my_ops\n"
        "from my_ops import functional\n"
        "a: str = my_ops.library_path()\n"
        "y: torch.Tensor = functional.group_norm(torch.ones(1), torch.ones(1), torch.ones(1), torch.ones(1))\n"
        "with my_ops.onnx.symbolics(17):\n"
        "    pass\n"
        "functional.dual_residual(torch.ones(1), torch.ones(1), 'half')\n"
    )
    done = fresh.run("-m", "mypy", "--strict", "--cache-dir", tmp_path / "cache", tmp_path / "use.py")
    (line,) = (line for line in done.stdout.splitlines() if "error" in line and "Found" not in line)
    assert 'use.py:8: error: Argument 3 to "dual_residual" has incompatible type "str"' in line


def test_two_libraries_with_one_operator_are_an_error(fresh: Environment) -> None:
    script = (
        "import torch\n"
        "library = torch.library.Library('cst', 'DEF')\n"
        "library.define('dual_residual(Tensor x, Tensor y, float alpha) -> (Tensor, Tensor)')\n"
        "import my_ops\n"
    )
    done = fresh.run("-c", script)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: cst::dual_residual: registered already, by another library"), done.stderr


MAPPED = """
import torch, my_ops
from torch.utils._python_dispatch import TorchDispatchMode


class Calls(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        called.append(str(func))
        return func(*args, **(kwargs or {}))


called = []
x, y, scale = torch.randn(5, 2, 4), torch.randn(2, 4, 5), torch.randn(4)
groups, custom_group_norm = torch.tensor([2.0]), torch.ops.mynamespace.custom_group_norm
with Calls():
    found = torch.vmap(lambda x, y: torch.ops.cst.dual_residual(x, y, 0.5), in_dims=(0, 2))(x, y)
    torch.vmap(lambda x: custom_group_norm(x, groups, scale, scale))(torch.randn(5, 3, 4, 2))
y = y.movedim(2, 0)
torch.testing.assert_close(found, (0.5 * x - y, 0.5 * y - x))
print(called.count("cst.dual_residual.default"), called.count("mynamespace.custom_group_norm.default"))
"""


def test_vmap_calls_an_operator_with_a_batch_once(fresh: Environment) -> None:
    """And an operator that declares none once per sample."""
    assert fresh.check("-c", MAPPED) == "1 5\n"


EXPORT = """
import sys, torch, my_ops
class M(torch.nn.Module):
    def forward(self, x): return torch.ops.cst.dual_residual(x, x, 0.5)
path, symbolics, opset = sys.argv[1:]
with my_ops.onnx.symbolics(int(symbolics)):
    torch.onnx.export(M(), (torch.ones(2),), path, dynamo=False, opset_version=int(opset))
"""


def test_an_opset_that_an_operator_does_not_support_is_refused(fresh: Environment, tmp_path: Path) -> None:
    done = fresh.run("-c", EXPORT, tmp_path / "m.onnx", "9", "9")
    assert "dual_residual needs opset 12 or newer, and the model is exported at 9" in done.stderr


def test_another_opset_than_that_of_the_symbolic_functions_is_refused(fresh: Environment, tmp_path: Path) -> None:
    done = fresh.run("-c", EXPORT, tmp_path / "m.onnx", "15", "17")
    assert "symbolics(15) are registered, and the model is exported at opset 17: give both one" in done.stderr


@pytest.mark.parametrize("torch", ["2.9", "2.15"])
def test_one_wheel_serves_other_torches(torch: str, wheel: Path, fresh: Environment, tmp_path: Path) -> None:
    environment = Environment.make(tmp_path / "environment", wheel, behind=other_python(f"torch{torch}"))
    folder = tmp_path / "exported"
    folder.mkdir()
    assert f"exported with torch {torch}." in environment.check(MODEL, "export", folder)
    assert "ran 6 models" in fresh.check(MODEL, "run", folder)


# What ONNX Runtime may not read: its newest opset, and the IR version that the dynamo exporter writes.
UNREADABLE = {"1.16": ("legacy20", "dynamo18", "dynamo20", "dynamo23"), "1.18": ("dynamo23",)}


@pytest.mark.parametrize("ort", UNREADABLE)
def test_one_wheel_serves_older_onnx_runtimes(ort: str, wheel: Path, exported: Path, tmp_path: Path) -> None:
    environment = Environment.make(tmp_path / "environment", wheel, behind=other_python(f"ort{ort}"))
    models = [path for path in exported.glob("*.onnx") if path.stem not in UNREADABLE[ort]]
    for path in (*models, exported / "data.npz"):
        (tmp_path / path.name).symlink_to(path)
    said = environment.check(MODEL, "run", tmp_path)
    assert f"ran {6 - len(UNREADABLE[ort])} models in ONNX Runtime {ort}." in said
