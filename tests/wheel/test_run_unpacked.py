"""The process that runs an unpacked wheel: how it ends is one sentence, and at a limit it is stopped.

The programs here stand for `opmatrix.wheel.use_unpacked`, so that no wheel is built.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from opmatrix.engine.server_pool import Pool
from opmatrix.engine.step_failure import failure_of
from opmatrix.errors import DistError
from opmatrix.project.paths import Paths
from opmatrix.step import Step
from opmatrix.step_log import LOGGED
from opmatrix.wheel import inputs, run_unpacked
from opmatrix.wheel.use_unpacked import DONE

AT = "print('# now op-a', flush=True)\n"
DIES = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)"
HANGS = "import time\ntime.sleep(99)"
GROWS = "x = []\nwhile True: x.append(bytearray(10**7))"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the program that runs instead of use_unpacked.py."""
    path = tmp_path / "program.py"
    monkeypatch.setattr(inputs, "PROGRAMS", (path,))
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
        pytest.param(HANGS, "did not end within 1 s and was stopped, at op-a in torch", id="time"),
        pytest.param(GROWS, "took more than 500 MB of memory and was stopped, at op-a in torch", id="memory"),
    ],
)
def test_a_limit_of_the_step_stops_the_program(program: Path, pool: Pool, code: str, summary: str) -> None:
    program.write_text(f"import os\nopen('process', 'w').write(str(os.getpid()))\n{AT}{code}")
    seconds, log = (1 if code == HANGS else 30), program.with_name("log")
    ending = pool.run([str(program)], server=None, log=log, seconds=seconds, megabytes=500)
    step = Step(group="dist", name="", command=("dist",), seconds=seconds, megabytes=500)
    assert not ending.done
    assert failure_of(step, ending, log).summary == summary
    assert not Path("/proc", program.with_name("process").read_text(), "exe").exists(), "it was killed too"
