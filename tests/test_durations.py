"""The durations of a part are read from its JUnit file, as pytest writes it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import durations

ROOT = Path(__file__).parents[1]
SUITE = """<testsuites><testsuite name="pytest" tests="3" time="9.5">
<testcase classname="tests.ops.test_a" name="one" time="1.25"/>
<testcase classname="tests.ops.test_b" name="two" time="8.0"><failure message="wrong"/></testcase>
<testcase classname="tests.ops.test_a" name="three" time="0.5"/>
</testsuite></testsuites>
"""
# Takes a second of CPU time in a process of its own.
BUSY = f"""'{sys.executable}' -c 'import time
while time.process_time() < 1.5: pass' """


def test_the_slowest_files_of_each_part_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unit.xml").write_text(SUITE)
    durations.main(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        "unit: 10 s, 3 tests, 10 s of their processes",
        "      8.0 s  ops.test_b",
        "      1.8 s  ops.test_a",
    ]


def test_what_pytest_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_one():\n    pass\n")
    made = tmp_path / "unit.xml"
    command = [sys.executable, "-m", "pytest", "-c", "/dev/null", "--rootdir", tmp_path, "--junitxml", made, tmp_path]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    seconds, tests, files = durations.read(made)
    assert tests == 1 and [*files] == ["test_one"] and seconds >= sum(files.values())


@pytest.mark.parametrize(("command", "code"), [(BUSY, 0), ("false", 1)], ids=["busy", "failing"])
def test_ci_prints_the_cpu_seconds_of_a_part(command: str, code: int, tmp_path: Path) -> None:
    """Also of the processes that a part starts, as its pytest does; a part that fails ends the run."""
    run = (ROOT / ".ci/run").read_text()
    part = run[run.index("part() {") : run.index("\n}\n", run.index("part() {"))]
    assert 'run tox run -e "$1" 2>&1' in part
    (tmp_path / "run").write_text(f"#!/bin/sh\necho output; {command}\n")
    (tmp_path / "run").chmod(0o755)
    script = f"set -euo pipefail; log=log took=took; {part}\n}}; part unit"
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    found = re.search(r"^ci: unit took \d+ s, (\d+) CPU s$", done.stdout, re.MULTILINE)
    assert (done.returncode, bool(found)) == (code, code == 0), done.stdout + done.stderr
    assert found is None or int(found[1]) >= 1
    assert "output" in (tmp_path / "log").read_text()
