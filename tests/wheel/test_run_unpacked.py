"""The process that runs an unpacked wheel: how it ends is one sentence, and at a limit it is stopped. Its cases.

The programs here replace `opmatrix.wheel.use_unpacked`, so that no wheel is built.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opmatrix.basics.errors import DistError
from opmatrix.basics.step_log import LOGGED
from opmatrix.data import dataset, write_data
from opmatrix.data.dataset import DataSet
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import load_operator
from opmatrix.engine.server_pool import Pool
from opmatrix.engine.step_failure import failure_of
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.records.step import Step
from opmatrix.wheel import dist, run_unpacked, settings
from opmatrix.wheel.run_unpacked import WheelRun
from opmatrix.wheel.settings import Dist
from opmatrix.wheel.use_unpacked import DONE
from tests.incremental.conftest import wait_for
from tests.support.projects import Project

AT = "print('# now op-a', flush=True)\n"
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
HANGS = "import time\ntime.sleep(999)"
GROWS = "x = []\nwhile True: x.append(bytearray(10**7))"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the program that runs instead of use_unpacked.py."""
    path = tmp_path / "program.py"
    monkeypatch.setattr(settings, "PROGRAMS", (path,))
    return path


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        pytest.param(DIES, "its process died of SIGSEGV, at its start", id="crash_at_start"),
        pytest.param(f"{AT}print('y = 3')\n{DIES}", "its process died of SIGSEGV, at op-a", id="crash"),
        pytest.param(f"{AT}print('# failed op-a: no')\nprint('y = 3')\nraise SystemExit(1)", "op-a: no", id="failed"),
        pytest.param(f"{AT}raise SystemExit('no y')",
                     "its process ended with exit code 1 before it was done, at op-a: no y", id="exit_1"),
        pytest.param(f"{AT}import os\nos._exit(0)", "its process ended with exit code 0 before it was done, at op-a",
                     id="exit_0"),
        pytest.param(f"{AT}print('{DONE}', flush=True)\n{DIES}", "its process died of SIGSEGV, at its end",
                     id="crash_at_end"),
    ],
)  # fmt: skip
def test_an_end_that_is_no_success_is_one_sentence(program: Path, code: str, problem: str) -> None:
    program.write_text(code)
    with pytest.raises(DistError) as raised:
        run_unpacked._start("torch", program)
    assert str(raised.value) == f"the wheel does not work in torch: {problem}"


def test_the_log_says_what_runs_and_what_was_printed(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOGGED, "1")
    program.write_text(f"{AT}print('y =', end='')\nprint('\\n# now op-b')\nprint('{DONE}')")
    run_unpacked._start("ort", program)
    running = ["its start", "op-a", "op-b"]
    assert capsys.readouterr().out.splitlines() == [f"# at {what} in ONNX Runtime" for what in running]
    program.write_text("print('y = 3')\nraise SystemExit(1)")
    with pytest.raises(DistError):
        run_unpacked._start("ort", program)
    assert "# y = 3\n" in capsys.readouterr().out


JOB = {
    "operators": [
        {"name": "a", "torch": "my::a",
         "models": [{"name": "m", "model": "", "cases": [{"name": "a-x"}, {"name": "a-y"}]}]},
        {"name": "b", "torch": None, "models": [{"name": "n", "model": "n.onnx", "cases": [{"name": "b-z"}]}]},
    ],
    "exports": [{"models": {"a": ["m"]}}, {"models": {"a": ["m"]}}],
}  # fmt: skip


def test_the_runs_of_cases_of_each_program() -> None:
    assert run_unpacked._case_runs(JOB, "torch") == ["a-x", "a-y"]
    assert run_unpacked._case_runs(JOB, "ort") == ["a-x", "a-y", "a-x", "a-y", "b-z"]


@pytest.mark.parametrize(
    ("side", "lines", "expected"),
    [
        ("torch", ["import my", "a-x", "a-x, my::a_", "a-y", "the dynamo exporter"], [(1, "a-x"), (2, "a-y")]),
        ("ort", ["a-x, dynamo-opset20", "a-x, model"], [(1, "a-x, dynamo-opset20"), (2, "a-x, model")]),
    ],
)
def test_the_log_says_how_many_cases_ran(
    program: Path, side: str, lines: list[str], expected: list[tuple[int, str]],
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv(LOGGED, "1")
    program.write_text("".join(f"print('# now {line}')\n" for line in [*lines]) + f"print('{DONE}')")
    run_unpacked._start(side, program, runs=run_unpacked._case_runs(JOB, side), which="1 of 2")
    total, where = {"torch": (2, "torch"), "ort": (5, "ONNX Runtime")}[side]
    said = [line for line in capsys.readouterr().out.splitlines() if "of cases" in line]
    begin = f"the wheel in {where} (1 of 2)"
    assert [line.partition(" ")[2].partition(" ")[2] for line in said] == [
        f"{begin}: {n} of {total} runs of cases, {at}" for n, at in expected
    ]


def entry(arguments: Sequence[str]) -> int:
    """What the step `dist` comes to."""
    run_unpacked._start("torch", Path(*arguments))
    return 0


@pytest.fixture
def pool(program: Path) -> Iterator[Pool]:
    lock = os.open(program.with_name("lock"), os.O_CREAT | os.O_RDWR)
    made = Pool(Paths(program.parent), entry=f"{__name__}:entry", lock=lock)
    made.prepare()
    yield made
    made.close()
    os.close(lock)


@pytest.mark.parametrize(
    ("code", "summary"),
    [
        pytest.param(HANGS, "did not end within 10 s and was stopped, at op-a in torch", id="time"),
        pytest.param(GROWS, "took more than 500 MB of memory and was stopped, at op-a in torch", id="memory"),
    ],
)
def test_a_limit_of_the_step_stops_the_program(program: Path, pool: Pool, code: str, summary: str) -> None:
    program.write_text(f"import os\nopen('process', 'w').write(str(os.getpid()))\n{AT}{code}")
    log = program.with_name("log")
    step = Step(group="dist", name="", command=("dist",), seconds=10 if code == HANGS else 3600, megabytes=500)
    while not program.with_name("process").exists():  # a busy machine stops it before it has begun
        ending = pool.run([str(program)], server=None, log=log, seconds=step.seconds, megabytes=500)
    assert not ending.done
    assert failure_of(step, ending, log).summary == summary
    process = Path("/proc", program.with_name("process").read_text(), "exe")
    wait_for(lambda: not process.exists())  # the kernel ends a killed process when it next runs


CASES = """
from opmatrix.spec import Case, Model, Random

def twice(x):
    return x * 2

def around(op, x):
    return op(twice(x)) + x

MODELS = (
    Model(name="m", types={"T": "float64"}, around=around, cases=(Case(name="c", inputs={"x": Random(shape=(3, 3))}),)),
)
"""


@pytest.fixture
def wheel_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], WheelRun]:
    """Return what `doit dist` runs with a torch, of an operator whose only model has nodes around it."""
    paths = Project.copy(tmp_path / "project", operators=("inverse",)).paths
    paths.cases("inverse").write_text(CASES)
    write_data.run(paths, load_operator(paths, "inverse"))
    (planned,) = read_operators(paths).operators
    found = Dist(
        name="my_ops", version="1", operators=("inverse",), summary="", license=None, licenses=(), third_party={}
    )
    versions = installed()

    def make(torch: str) -> WheelRun:
        monkeypatch.setattr(dist, "installed", lambda: replace(versions, torch=torch))
        monkeypatch.setattr(run_unpacked, "run", lambda wheel, use: use)
        made: Any = dist._run(
            paths, found, [planned], [Cell(torch="2.13", exporter="legacy", opset=17, ort="1.31")], b""
        )
        return replace(made, folder=tmp_path)

    return make


def test_a_wheel_gets_what_a_model_gives_its_operator(wheel_run: Callable[[str], WheelRun]) -> None:
    """And its outputs are compared after the nodes behind the operator; another number of them is a problem."""
    use = wheel_run("2.13.0")
    (case,) = use.job()["operators"][0]["models"][0]["cases"]
    (run,) = use.runs
    given = dataset.read(Path(case["data"])).inputs["x"]
    assert (given == 2 * run.data.inputs["x"]).all()
    out = Path(case["out"], "torch")
    for add, problems in ((0, 0), (1, 1)):
        dataset.write(out, DataSet(inputs={}, outputs={"o": np.linalg.inv(given) + add}))
        assert len([*run.problems()]) == problems
    shutil.rmtree(out)
    dataset.write(out, DataSet(inputs={}, outputs={"o0": np.zeros((3, 3)), "o1": np.zeros((3, 3))}))
    assert [*run.problems()] == ["inverse-c, torch: gives 2 outputs, declared: 1"]


def test_an_exported_model_has_the_nodes_around_its_operator(wheel_run: Callable[[str], WheelRun]) -> None:
    """It is run where the wheel does not serve the installed torch."""
    use = wheel_run("2.6.0")
    (model,) = use.job()["operators"][0]["models"]
    (run,), (case,) = use.runs, model["cases"]
    assert model["model"].endswith("/model.onnx")
    assert (dataset.read(Path(case["data"])).inputs["x"] == run.data.inputs["x"]).all()
    dataset.write(Path(case["out"], "model"), DataSet(inputs={}, outputs=run.data.outputs))
    assert [*run.problems()] == []
    with pytest.raises(
        DistError, match=r"^inverse: ONNX Runtime reads the models of no default cell, so that none is "
    ):
        replace(use, cells=()).job()
