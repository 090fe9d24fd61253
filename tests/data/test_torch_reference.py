"""A reference in torch: it runs in a process of its own, and must not call the operator under test."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.basics.interrupts import TooSlow, cpu_limit, memory_limit
from opmatrix.data import torch_reference, write_data
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import TorchOp
from tests.incremental.conftest import wait_for
from tests.support import double
from tests.support.projects import write_files

pytestmark = [pytest.mark.torch, pytest.mark.slow]  # a process that imports torch takes 1.2 CPU s

SPEC = replace(double.SPEC, reference="torch", torch=TorchOp(name="planted::double"))
BODY = "import torch\n\ndef double(x, *, factor):\n    {}\n    return x * factor\n"
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def project(root: Path, reference: str = BODY.format("pass"), **fields: Any) -> tuple[Paths, Operator]:
    paths = double.project(root, reference=reference)
    return paths, Operator(spec=replace(SPEC, **fields), models=(double.DYNAMIC,))


def message(root: Path, reference: str, **fields: Any) -> str:
    """Return what the stage `data` prints about a reference."""
    with pytest.raises(DataError) as raised:
        write_data.run(*project(root, reference, **fields))
    return str(raised.value)


def test_the_record_has_its_torch_and_the_precision(tmp_path: Path) -> None:
    import torch

    paths, operator = project(tmp_path)
    write_data.run(paths, operator)
    record = json.loads(paths.data_manifest("double").read_text())
    assert record["reference"] == f"torch {torch.__version__.partition('+')[0]}"
    assert {judge["precision"] for judge in record["judged_in"].values()} == {"float64"}


def test_a_sum_that_loses_digits_is_computed_in_float64(tmp_path: Path) -> None:
    body = "import torch\n\ndef double(x, *, factor):\n    return x * factor + 1e8 - 1e8\n"
    reference = Reference(project(tmp_path, body)[0], SPEC)
    (plain,), (wide,) = (
        reference((X,), {"factor": 2.0}, precision=precision) for precision in ("declared dtype", "float64")
    )
    assert np.array_equal(wide, 2 * X) and not np.array_equal(plain, wide)


OTHER = """
import torch
library = torch.library.Library("planted", "DEF")
library.define("double(Tensor x, float factor) -> Tensor")
library.impl("double", lambda x, factor: x * factor, "{}")
"""
CALL = "torch.ops.planted.double(x, factor)"
FAULTS = {
    "not loaded": CALL,
    "defined by a module": f"import other; {CALL}",
    "decomposed": f"import composite; {CALL}",
    "TorchScript": "import scripted; scripted.call(x, factor)",
}


@pytest.mark.parametrize("way", FAULTS)
def test_a_call_of_the_operator_under_test(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = f"from other import torch\n@torch.jit.script\ndef call(x, factor: float):\n    return {CALL}\n"
    modules = {"other": OTHER.format("CPU"), "composite": OTHER.format("CompositeImplicitAutograd")}
    modules["scripted"] = scripted
    write_files(tmp_path / "modules", {f"{name}.py": text for name, text in modules.items()})
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'modules'}:{Path(write_data.__file__).parents[2]}")
    found = message(tmp_path, BODY.format(FAULTS[way]))
    assert "ops/double/reference.py:4: " in found
    assert "calls planted::double, the operator under test, so it agrees with any fault. Write the reference" in found


WRONG = {
    2.0: ("return x.numpy()", "double() returns numpy.ndarray, allowed: a torch.Tensor, or a tuple of them"),
    3.0: ("return x, x", "gives 2 outputs, declared: 1"),
    4.0: ("return x.to(torch.int32)", "output 'y' is int32, declared: float32"),
    5.0: ("raise ValueError('no')", "ops/double/reference.py:11: ValueError: no"),
    6.0: ("torch.full((3,), 1) @ x", "ops/double/reference.py:13: RuntimeError: "),
    7.0: ("import onnxruntime", "imports onnxruntime: it runs the models under test"),
    8.0: ("import os; os._exit(3)", "the process that evaluates it in torch ended with exit code 3"),
    9.0: ("import os; os.abort()", "the process that evaluates it in torch died of SIGABRT"),
}


def test_what_a_function_must_not_do(tmp_path: Path) -> None:
    body = "\n    ".join(f"if factor == {factor}:\n        {line}" for factor, (line, _) in WRONG.items())
    reference = Reference(project(tmp_path, BODY.format(body))[0], SPEC)
    for factor, (_, expected) in WRONG.items():
        with pytest.raises(DataError) as raised:
            reference((X,), {"factor": factor})
        assert expected in str(raised.value)
    assert np.array_equal(reference((X,), {"factor": 1.0})[0], X)  # in a new process


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("import torch\n", "no function named double(); the operator's name is expected"),
        ("import tensors\n", "ops/double/reference.py:1: ModuleNotFoundError: No module named 'tensors'"),
    ],
)
def test_a_reference_that_cannot_be_loaded(reference: str, expected: str, tmp_path: Path) -> None:
    assert expected in message(tmp_path, reference)


def test_limits_of_time_and_memory_apply_in_its_process(tmp_path: Path) -> None:
    body = "if factor == 3.0:\n        while True: x = x + 1\n    if factor == 4.0: torch.ones(1 << 32)"
    reference = Reference(project(tmp_path, BODY.format(body))[0], SPEC)
    reference((X,), {"factor": 2.0})  # the first call imports what torch needs, and has no limit
    with pytest.raises(TooSlow), cpu_limit(0.1):
        reference((X,), {"factor": 3.0})
    with pytest.raises(DataError) as raised, memory_limit(1000):
        reference((X,), {"factor": 4.0})
    assert isinstance(raised.value.__cause__, MemoryError)
    assert np.array_equal(reference((X,), {"factor": 5.0})[0], 5 * X)  # the process goes on


@pytest.mark.deep
def test_what_data_computed_is_read_without_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, operator = project(tmp_path)
    write_data.run(paths, operator)
    torch_reference._reference.cache_clear()  # as in another process

    def none(*_: Any, **__: Any) -> None:
        raise DataError("it starts a process")

    monkeypatch.setattr(subprocess, "Popen", none)
    plain = double.DYNAMIC.cases[1].inputs["x"].values  # type: ignore[union-attr]  # it has values
    special = np.array(plain, np.float32)
    given = {"factor": np.float32(2)}  # as onnx.reference has it
    assert np.array_equal(Reference(paths, operator.spec)((special,), given)[0], 2 * special, equal_nan=True)
    with pytest.raises(DataError, match="it starts a process"):
        Reference(paths, operator.spec)((special + 1,), given)
    paths.reference("double").write_text(BODY.format("x = x + 1"))  # data was of another reference
    torch_reference._reference.cache_clear()
    with pytest.raises(DataError, match="it starts a process"):
        Reference(paths, operator.spec)((special,), given)


def test_arrays_of_each_dtype_arrive_as_tensors_and_come_back(tmp_path: Path) -> None:
    paths, _ = project(tmp_path, BODY.format("return x"))
    found = torch_reference.function(paths, SPEC, [])
    for name in ("bool", "uint8", "int16", "int64", "float16", "float32", "float64", "bfloat16", "float8_e4m3fn"):
        array = np.array([[0, 1], [1, 3]]).astype(np.dtype(name))
        (back,) = found(array, factor=2.0)
        assert back is not None and back.dtype == array.dtype and np.array_equal(back, array)


def test_an_array_that_is_given_twice_is_two_tensors(tmp_path: Path) -> None:
    """A reference may write to its inputs."""
    paths, _ = project(tmp_path, "def double(x, rest, *, factor):\n    x.zero_()\n    return (x, *rest)\n")
    outputs = torch_reference.function(paths, SPEC, [])(X, (X, X.copy(), X), factor=2.0)
    assert [np.array_equal(output, X) for output in outputs] == [False, True, True, True]


def test_a_large_array_is_in_memory_once(tmp_path: Path) -> None:
    """Before, the peak of this process was 3.8 arrays when it had stored what came back."""
    paths, _ = project(tmp_path, BODY.format("return x + 1"))
    script = f"""
import resource
import numpy as np
from pathlib import Path
from opmatrix.project.paths import Paths
from opmatrix.data import torch_reference
from tests.data.test_torch_reference import SPEC

layout = Paths(Path({str(paths.root)!r}))
function, reference = torch_reference.function(layout, SPEC, []), torch_reference.of(layout, SPEC)
reference.record()
function(np.ones(1), factor=2.0)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
x = np.ones(16 << 20, np.float32)
function(x, factor=2.0)
path = layout.reference_calls(SPEC.name)
reference.write(path)
print((peak() - before) / x.nbytes, path.stat().st_size / x.nbytes)
torch_reference._reference.cache_clear()  # as in another process
torch_reference.function(layout, SPEC, [])(x, factor=2.0)
print((peak() - before) / x.nbytes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=3600, check=True)
    written, stored, read = map(float, done.stdout.split())
    assert 1.0 <= stored < 1.1
    assert written < 2.5  # x, and what came back
    assert read < 3.5  # and what was read


def test_the_process_ends_with_the_one_that_calls_it(tmp_path: Path) -> None:
    paths, _ = project(tmp_path)
    script = f"""
import os
import numpy as np
from dataclasses import replace
from pathlib import Path
from opmatrix.project.paths import Paths
from opmatrix.data import torch_reference
from tests.data.test_torch_reference import SPEC, X, Reference

Reference(Paths(Path({str(paths.root)!r})), SPEC)((X,), {{"factor": 2.0}})
print(torch_reference.of(Paths(Path({str(paths.root)!r})), SPEC)._process.pid, flush=True)
os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=3600)
    child = Path(f"/proc/{int(done.stdout)}/stat")

    def ended() -> bool:
        try:
            return child.read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            return True

    wait_for(ended)
