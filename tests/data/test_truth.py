"""In which precision a reference is evaluated: float64 where that is possible, and the record says where it is not. A
generator with the computed state gives the number: by NumPy's MT19937, and by torch. What no hook of Python sees of
a reference that runs what it should judge: Linux lists it in /proc. Each runs in a process of its own, as a step
does: other tests leave processes and pipes in this one.
"""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import dataset, reference_audit, truth, write_data
from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import generator_state
from opmatrix.data.reference import Reference
from opmatrix.data.truth import Judge, Truth
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, DType, Model, OpSpec, Output, Random, SameAs, Values
from tests.support import double
from tests.support.double import SPEC, with_case
from tests.support.projects import ROOT, with_reference, write_files

NAIVE = "return np.cumsum(x, axis=-1)"  # adds in the dtype of x, one after the other


def reference(root: Path, body: str, spec: OpSpec = SPEC) -> Reference:
    paths = with_reference(root, "double", f"import numpy as np\n\ndef double(x, *, factor):\n    {body}\n")
    return Reference(paths, spec)


def evaluate(root: Path, body: str, x: Any, dtype: DType = "float32", spec: OpSpec = SPEC) -> Truth:
    return truth.evaluate(reference(root, body, spec), spec, {"T": dtype}, (np.array(x, dtype),), {"factor": 2.0})


def drawn(count: int, dtype: DType = "float32") -> Array:
    made: Array = np.random.Generator(np.random.PCG64(0)).normal(1.0, 1.0, count).astype(dtype)
    return made


def test_a_sum_that_loses_digits_is_judged_in_float64(tmp_path: Path) -> None:
    x = drawn(20_000)
    found = evaluate(tmp_path, NAIVE, x)
    assert found.judge == Judge(precision="float64")
    assert found.outputs[0].dtype == np.float32
    np.testing.assert_array_equal(found.outputs[0], np.cumsum(x.astype(np.float64)).astype(np.float32))
    lost = np.abs(np.cumsum(x) - found.outputs[0]) / np.spacing(found.outputs[0])
    assert lost.max() > 10, "in float32 it is many units in the last place off"


def test_a_float64_operator_is_judged_in_longdouble_where_the_reference_keeps_it(tmp_path: Path) -> None:
    x = drawn(1000, "float64")
    found = evaluate(tmp_path, NAIVE, x, "float64")
    assert found.judge == Judge(precision="longdouble")
    distance = np.abs(np.cumsum(x.astype(np.longdouble)) - found.outputs[0]) / np.spacing(found.outputs[0])
    assert 0.4 < distance.max() < 0.501


@pytest.mark.parametrize(
    "body",
    [
        "return (np.asarray(x, np.float64) / 3).astype(x.dtype)",  # the dtype of x, and no more digits than float64
        "return np.float64(x) / 3",
        "return np.linalg.inv(x[:, :1, None])[:, 0]",  # which raises TypeError for longdouble
    ],
)
def test_a_float64_operator_whose_reference_does_not_keep_longdouble(tmp_path: Path, body: str) -> None:
    assert evaluate(tmp_path, body, [[1.0], [3.0]], "float64").judge == Judge(precision="float64")


def test_a_sum_in_longdouble_is_not_rounded_twice(tmp_path: Path) -> None:
    """1 + (2**-53 + 2**-70) is just above the middle of two float64, and in longdouble it is the middle."""
    x = [2.0**-53 + 2.0**-70, 3.0]
    found = evaluate(tmp_path, "return x + 1", x, "float64")
    np.testing.assert_array_equal(found.outputs[0], np.array(x) + 1)
    assert found.outputs[0][0] == 1 + 2.0**-52 != np.float64(np.longdouble(x[0]) + 1)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_every_narrow_dtype_is_widened_and_rounded_back(tmp_path: Path, dtype: DType) -> None:
    spec = replace(SPEC, types={"T": (dtype,)})
    found = evaluate(tmp_path, "return np.asarray(x, x.dtype) / 3", [1.0, np.nan, np.inf, 0.0], dtype, spec)
    assert found.judge == Judge(precision="float64")
    wanted = np.array([1 / 3, np.nan, np.inf, 0.0]).astype(found.outputs[0].dtype)
    np.testing.assert_array_equal(found.outputs[0].astype("f8"), wanted.astype("f8"))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("return np.float32(x) * 2", "in float64 it gives 'y' as float32"),
        ("assert x.dtype == 'f4', 'float32 alone'; return x * 2", "in float64 it raises: ops/double/reference.py:4: "),
        ("return x * (2 if x.dtype == 'f4' else 3)", "at (0,) it is 3.0, not 2.0. If it jumps there, write"),
        ("return x if x.dtype == 'f4' else x[:1]", "in float64 output 'y' has the shape (1,), not (2,)"),
        # 1 / 0.1 is 10 in float32, and below 10 for the same values in float64.
        ("return np.floor(x / np.float32(0.1))", "at (0,) it is 9.0, not 10.0"),
        ("return (x * x.dtype.type(3e38) * 1e10) / x.dtype.type(3e38)", "differs by more than rounding"),
    ],
    ids=["narrow", "raises", "asks_for_the_dtype", "shape", "jumps", "overflows"],
)
def test_what_changes_in_float64_is_judged_in_the_declared_dtype(tmp_path: Path, body: str, reason: str) -> None:
    with np.errstate(all="ignore"):
        found = evaluate(tmp_path, body, np.array([1.0, 0.3], "f4"))
        plain = reference(tmp_path / "plain", body)((np.array([1.0, 0.3], "f4"),), {"factor": 2.0})
    assert found.judge.precision == "declared dtype"
    assert reason in found.judge.reason
    np.testing.assert_array_equal(found.outputs[0], plain[0])


def test_a_declared_discontinuity_is_not_widened(tmp_path: Path) -> None:
    spec = replace(SPEC, discontinuous="rounds down")
    found = evaluate(tmp_path, "assert x.dtype == 'f4'; return np.floor(x / np.float32(0.1))", [0.3], spec=spec)
    assert str(found.judge) == "declared dtype: declared discontinuous: rounds down"


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_a_discrete_output_is_evaluated_in_the_declared_dtype(tmp_path: Path, dtype: DType) -> None:
    spec = replace(SPEC, outputs=(Output(name="kept", type=dtype, shape=SameAs(input="x")),))
    found = evaluate(tmp_path, "assert x.dtype == 'f4'; return x > 0", [0.5, -0.5], spec=spec)
    assert str(found.judge) == f"declared dtype: output 'kept' is {dtype}, which jumps"
    assert found.outputs[0].tolist() == [1, 0]


def test_what_the_reference_refuses_in_the_declared_dtype_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="ValueError: no"):
        evaluate(tmp_path, "if x.dtype == 'f4': raise ValueError('no')\n    return x", [1.0])


def test_the_record_says_which_precision_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models of one operator: one that is judged in float64, and one in which the reference asks for the dtype."""
    reference(tmp_path, "return x * (3 if x.dtype == 'f8' and x[0, 0] == 1 else 2)")
    cases = (
        Case(name="two", inputs={"x": Random(shape=(2, 3))}),
        Case(name="odd", inputs={"x": Values(values=((1.0,),))}),
    )
    paths, models = Paths(tmp_path), [replace(with_case(Random(shape=(1, 1))).models[0], cases=(c,)) for c in cases]
    named = tuple(replace(m, name=m.cases[0].name) for m in models)
    write_data.run(paths, Operator(spec=SPEC, models=named))
    judges = truth.read_judges(paths.data_manifest("double"))
    assert judges[paths.data("double", "two", 0)] == Judge(precision="float64")
    assert judges[paths.data("double", "odd", 0)].precision == "declared dtype"
    assert capsys.readouterr().out.startswith(
        "compared in the declared dtype: in float64 output 'y' differs by more than "
    )
    assert dataset.read(paths.data("double", "odd", 0)).outputs["Y"].tolist() == [[2.0]]


def test_a_damaged_record_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "data.json"
    for content in ("", "{}", '{"judged_in": {"a": {"other": 1}}}', '{"judged_in": []}'):
        path.write_text(content)
        with pytest.raises(DataError, match=r"data.json is missing or damaged. Run: python -m opmatrix data"):
            truth.read_judges(path)


def test_the_models_of_a_search_get_the_same_answer() -> None:
    """What property_test asks: by the declaration and the drawn types, without the reference."""
    model = Model(name="drawn", types={"T": "float64"}, cases=())
    assert truth.declared_judge(SPEC, model.types) == Judge(precision="longdouble")


RANGES = (
    (0, None), (-1, None), (-(2**63), None), (0, 2**31), (0, 2**32), (0, 2**32 + 1), (0, 2**28 + 1), (5, 2**30),
    (-(2**40), 2**41), (0, 1), (3, 11),
)  # fmt: skip


def numbers(low: int, end: int | None) -> list[int]:
    """Return the ends of a range, and numbers between."""
    last = (2**63 if end is None else end) - 1
    drawn = random.Random(0)
    return [low, last, *(drawn.randint(low, last) for _ in range(20))]


@pytest.mark.parametrize(("low", "end"), [(0, None), (0, 2**32)])
def test_the_words_are_those_of_mt19937(low: int, end: int | None) -> None:
    for number in numbers(low, end):
        state = generator_state(number, low, end)
        key = np.array(struct.unpack_from("<624Q", state, 24), np.uint32)
        twister = np.random.MT19937()
        twister.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 0}}
        first, second = (int(word) for word in twister.random_raw(2))
        assert ((first << 32 | second) % (2**63 if end is None else end)) == number


@pytest.mark.torch
@pytest.mark.parametrize(("low", "end"), RANGES)
def test_torch_gives_the_number(low: int, end: int | None) -> None:
    import torch

    for number in numbers(low, end):
        state = torch.frombuffer(bytearray(generator_state(number, low, end)), dtype=torch.uint8)
        generator = torch.Generator().set_state(state)
        made = torch.empty((), dtype=torch.int64).random_(low, end, generator=generator)
        assert made.item() == number


BODY = "def double(x, *, factor):\n    import builtins\n    {}\n    return x * factor\n"
# `before` and `after` are of another program. `builtins.kept` lives as long as this process.
PROGRAM = """
import builtins, pathlib, sys
from opmatrix.basics.errors import DataError
from opmatrix.project.paths import Paths
from opmatrix.data import write_data
from tests.support import double
root = pathlib.Path(sys.argv[1])
builtins.kept = []
{before}
try:
    write_data.run(Paths(root), double.OPERATOR)
except DataError as error:
    print(error)
{after}
"""
# What the reference does, the lines before and after it, and what the message says.
# At 71b51ad8: each was accepted.
UNSEEN = {
    "a process": (
        "import multiprocessing.util as u\n"
        "    builtins.kept or builtins.kept.append(u.spawnv_passfds(b'/bin/sleep', [b'sleep', b'600'], []))",
        "",
        "import os; os.kill(builtins.kept[0], 9)",
        "has a child process, which may run the kernel",
    ),
    "a server of multiprocessing": (
        "import multiprocessing.resource_tracker as r; r.ensure_running()",
        "",
        "",
        "has a child process, which may run the kernel",
    ),
    "a process that runs": (
        "builtins.kept[0].write(b'2'); builtins.kept[0].flush()",
        "import subprocess; from opmatrix.data import reference_audit; reference_audit.start()\n"
        "program = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)\n"
        "builtins.kept.append(program.stdin)",
        "program.kill(); program.wait()",
        "has a child process, which may run the kernel",
    ),
    "shared memory": (
        "import os; from multiprocessing import shared_memory as s\n"
        "    builtins.kept.append(s.SharedMemory(f'opmatrix{os.getppid()}'))",
        "import os\nos.ftruncate(os.open(f'/dev/shm/opmatrix{os.getppid()}', os.O_RDWR | os.O_CREAT), 64)",
        "os.unlink(f'/dev/shm/opmatrix{os.getppid()}')",
        "shares memory with other processes (/dev/shm/opmatrix{parent}), which may run the kernel",
    ),
    "a pipe": (
        "import os; os.pipe()",
        "",
        "",
        "has a pipe to another process, which may run the kernel",
    ),
    # A map of a file as dlopen() makes it.
    "a library": (
        "import mmap; builtins.kept.append(mmap.mmap(builtins.kept[0], 0, mmap.MAP_PRIVATE, 5))",
        "(root / 'mine.so').write_bytes(b'0' * 4096); builtins.kept.append((root / 'mine.so').open().fileno())\n"
        "import os; builtins.kept[0] = os.open(root / 'mine.so', os.O_RDONLY)",
        "",
        "has loaded {root}/mine.so, allowed: libraries of the system and of installed packages",
    ),
}


def printed(root: Path, statement: str, before: str = "", after: str = "") -> str:
    """Return what a program prints that runs the stage `data` with a reference, and lines before and after it."""
    double.project(root, reference=BODY.format(statement))
    program = PROGRAM.format(before=before, after=after)
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(root)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("way", UNSEEN)
def test_it_is_found_when_the_reference_has_run(way: str, tmp_path: Path) -> None:
    statement, before, after, expected = UNSEEN[way]
    found = printed(tmp_path, statement, before, after)
    trace = expected.format(root=tmp_path, parent=os.getpid())
    assert f"ops/double/reference.py: after it ran, the process {trace}. Write the reference in NumPy, " in found


def test_a_copy_is_found_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under another name, and of a library that the build made while the reference ran."""
    monkeypatch.setattr(reference_audit, "_python_folders", lambda: (tmp_path / "packages",))
    traces = {name: reference_audit.Traces.now() for name in ("before", "after")}
    build, copy = tmp_path / "build/ort", tmp_path / "packages/copy.so.1"
    for path in (build / "other.so", build / "libdouble.so", copy):
        path.parent.mkdir(parents=True, exist_ok=True)
    (build / "other.so").write_bytes(b"other")
    (build / "nowhere.so").symlink_to(tmp_path / "nowhere")
    copy.write_bytes(b"same")
    assert reference_audit.copied_from(copy, tmp_path) == ""
    (build / "libdouble.so").write_bytes(b"same")
    after = replace(traces["after"], mapped=traces["before"].mapped | {str(copy)})
    (found,) = after.since(traces["before"], tmp_path, waited=False)
    assert f"has loaded {copy}, a copy of build/ort/libdouble.so, which this build made" in found


def test_a_copy_is_found_although_another_file_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone, made, copy = tmp_path / "build/gone.so", tmp_path / "build/libdouble.so", tmp_path / "packages/copy.so"
    monkeypatch.setattr(reference_audit, "_built", lambda _: {4: [gone, made]})
    write_files(tmp_path, {"build/libdouble.so": "same", "packages/copy.so": "same"})
    assert reference_audit.copied_from(copy, tmp_path) == "build/libdouble.so"


def test_what_was_there_before_is_not_the_reference_s(tmp_path: Path) -> None:
    before = (
        "import os, subprocess; builtins.kept.append(os.pipe())\n"
        "program = subprocess.Popen(['cat'], stdin=subprocess.PIPE)\n"
        "program.kill()"
    )
    assert not printed(tmp_path, "builtins.kept", before, "program.wait()")


def test_a_child_of_others_that_ends_meanwhile(tmp_path: Path) -> None:
    """As where garbage of an earlier user of this process is collected while the reference runs."""
    before = "import subprocess; builtins.kept.append(subprocess.Popen(['true']))"
    assert not printed(tmp_path, "builtins.kept[0].wait()", before)
