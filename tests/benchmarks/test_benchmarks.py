"""Each program in benchmarks/ runs, at its smallest size; faults.py distinguishes right results from wrong ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.incremental.conftest import REPOSITORY

pytestmark = pytest.mark.incremental

BENCHMARKS = REPOSITORY / "benchmarks"
PARTS = {"measuring", "plot", "toy"}  # modules that the programs import
# The programs that need only their smallest size, and the end of their output.
SMALLEST = {
    "alarms": (["--smallest"], "a slowdown of 10% is found in 1 of 1\n"),
    "against": (["HEAD", "--smallest", "--only", "no-op"], "no-op"),
    "calls": (["--smallest"], "built-in: Add"),
    "check_growth": (["--smallest"], "100 nodes"),
    "check_models": (["--sample", "16", "--faults", "8"], "and named"),
    "cluster": (["--rounds", "1", "--smallest", "--workers", "1"], "alone: none of "),
    "growth": (["--operators", "1", "--rounds", "1"], "1  default"),
    "kernels": (["--smallest", "dual_residual"], "rows at most 1.0, the slowest "),
    "kernels_originals": (["--smallest", "--only", "causal_conv1d"], "silu float64"),
    "loop": (["--rounds", "1", "--smallest"], "Python alone, importing doit"),
    "memory": (["--smallest"], "copies, allowed: 4"),
    "new": (["--rounds", "1", "--smallest"], "goal: 10 s"),
    "report": (["--cells", "5", "--rounds", "1"], "one cell failed"),
    "sharing": (["--rounds", "1", "--smallest"], "nothing to do"),
    "schedule": (["--smallest"], "longest first"),
    "simd": (["--smallest"], "greatest error of exp_double"),
    "structure": ([], "circles of files"),
    "watch": (["--rounds", "1", "--turns", "3", "--smallest"], "resident process: "),
    "whole": (["--rounds", "1", "--smallest"], "of that the exporters: "),
}
# Up to a minute each at their smallest: alarms.py compiles five builds, and tests/addons/bench/test_run.py finds the
# same slowdown; calls.py compiles against torch's headers; tests/data/test_blocks.py counts copies as memory.py does.
LONG = {"alarms", "calls", "memory"}
# In place of pygount, which lines.py needs and this project does not require.
PYGOUNT = """
from pathlib import Path
from types import SimpleNamespace

__version__ = "0"


class SourceAnalysis:
    @staticmethod
    def from_file(path, group, encoding):
        lines = len(Path(path).read_text().splitlines())
        counts = dict(line_count=lines, source_count=lines, documentation_count=0, empty_count=0)
        return SimpleNamespace(is_countable=True, **counts)
"""


def run(program: str, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, f"benchmarks/{program}.py", *arguments]
    environ = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    return subprocess.run(command, cwd=REPOSITORY, env=environ, capture_output=True, text=True, timeout=3600)


def test_each_program_has_a_smallest_size() -> None:
    """But careless.py, whose fixed cost is that of two first runs of `doit mutate`, a minute: it runs by hand. That of
    shards.py is 27 CPU s: its test is deep."""
    assert {path.stem for path in BENCHMARKS.glob("*.py")} == {
        *SMALLEST,
        *PARTS,
        "faults",
        "generated",
        "lines",
        "seeds",
        "careless",
        "mistakes",
        "outcomes",
        "shards",
    }


@pytest.mark.deep
def test_shards_in_turn_compute_nothing_twice() -> None:
    done = run("shards", "--smallest", "--in-turn")
    assert done.returncode == 0 and "computed twice: nothing" in done.stdout, done.stdout + done.stderr


@pytest.mark.deep
def test_all_kernels_are_measured() -> None:
    done = run("kernels", "--smallest")
    assert done.returncode == 0 and done.stdout.count("rows at most 1.0, the slowest ") >= 2, done.stdout + done.stderr


@pytest.mark.parametrize(
    "program", [pytest.param(name, marks=[pytest.mark.deep] if name in LONG else []) for name in SMALLEST]
)
def test_a_program_runs(program: str) -> None:
    arguments, word = SMALLEST[program]
    done = run(program, *arguments)
    assert done.returncode == 0 and word in done.stdout, done.stdout + done.stderr


def test_an_outcome_that_changed_or_is_lost_is_printed(tmp_path: Path) -> None:
    def report(name: str, *outcomes: str) -> str:
        where = {"op": "double", "lowering": "custom", "torch": "2.13", "exporter": "dynamo", "opset": 18}
        cells = [where | {"ort": f"1.{n}", "outcome": outcome} for n, outcome in enumerate(outcomes)]
        checks = [{"op": "double", "check": "schema", "lowering": None, "torch": None, "outcome": "verified"}]
        (tmp_path / name).write_text(json.dumps({"cells": cells, "checks": checks}))
        return str(tmp_path / name)

    before = report("before", "verified", "unsupported", "verified")
    stored = tmp_path / "stored.json"
    stored.write_text(run("outcomes", before, "--store").stdout)
    for first in (before, str(stored)):
        same, other = run("outcomes", first, before), run("outcomes", first, report("after", "failed", "unsupported"))
        assert (same.returncode, same.stdout) == (0, "4 outcomes before, 4 now; 0 changed or lost; new: {}\n")
        assert other.returncode == 1 and set(other.stdout.splitlines()) == {
            "double custom 2.13 dynamo 18 1.0: verified, now failed",
            "double custom 2.13 dynamo 18 1.2: verified, now lost",
            "4 outcomes before, 3 now; 2 changed or lost; new: {}",
        }


def test_generated_code_that_differs_is_printed() -> None:
    program = (
        "import sys, generated as g\n"
        "generate = g.generate\n"
        "def planted(operators, python, into, **options):\n"
        "    code = generate(operators, python, into, **options)\n"
        "    if into.name == 'now':\n"
        "        name = min(code)\n"
        "        code[name]['kernel.cc'] += b'int planted;\\n'\n"
        "    return code\n"
        "g.generate = planted\n"
        "sys.argv = ['generated.py', 'HEAD', '--diff', '--here', '--only', 'tests/projects/minimal']\n"
        "sys.exit(g.main())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "+int planted;" in done.stdout and "files are equal to those of " in done.stdout


def test_a_fault_that_changes_nothing_is_not_found() -> None:
    """So that check_models.py cannot count what any line has as found."""
    program = (
        "import sys, check_models as c\n"
        "c.FAULTS = {'nothing': lambda model: [c.label(model.graph.node[-1])]}\n"
        "c.has_effect = lambda *_: True\n"
        "sys.argv = ['check_models.py', '--sample', '16', '--faults', '2']\n"
        "sys.exit(c.main())"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.count("not found  0") == 2


def test_lines_are_counted(tmp_path: Path) -> None:
    """The seeds have 1000 lines here, so that the goal is met."""
    (tmp_path / "pygount.py").write_text(PYGOUNT)
    theirs = subprocess.run(
        [sys.executable, "-c", "import lines; print(*lines.THEIRS)"], cwd=BENCHMARKS, capture_output=True, text=True
    ).stdout.split()
    for name in theirs:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n" * 1000)
    done = run("lines", str(tmp_path), path=tmp_path)
    assert done.returncode == 0 and "the real one: " in done.stdout, done.stdout + done.stderr


def test_faults_are_distinguished() -> None:
    done = run("faults", "--only", "flag", "SIGKILL")
    assert done.returncode == 0, done.stdout + done.stderr
    _, flag, killed, *_ = (line.split("|") for line in done.stdout.splitlines())
    assert [part.split() for part in flag[1:]] == [["right", "1"], ["stale,", "for", "good", "0"]]
    assert killed[1].split() == ["right", "1"]
    assert killed[2].split() == ["right", "+", "litter", "3"]


def test_other_seeds_find_red_and_weak_operators(tmp_path: Path) -> None:
    """A kernel that is wrong for large inputs is red, a reference that refuses most inputs weak."""
    shutil.copytree(REPOSITORY / "tests/projects/minimal", tmp_path, dirs_exist_ok=True)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    green = run("seeds", "--seeds", "2", "--project", str(tmp_path))
    assert green.returncode == 0 and "group_norm           green" in green.stdout, green.stdout + green.stderr
    reference = tmp_path / "ops/group_norm/reference.py"
    right = reference.read_text()
    reference.write_text(right.replace("    count = ", "    if x.size > 20: raise ValueError('much')\n    count = ", 1))
    red = run("seeds", "--seeds", "1", "--project", str(tmp_path))
    assert red.returncode == 1 and "group_norm, seed 0: red: " in red.stdout, red.stdout + red.stderr
    assert "group_norm, seed 0: weak: the reference rejects " in red.stdout
