"""Real runs of `doit bench`: an operator and its peers, a crash, and a planted slowdown since a revision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.engine.database import Journal
from opmatrix.engine.tasks import REPORT
from opmatrix.project import cpu_levels
from opmatrix.project.paths import Paths
from tests.addons.bench.test_records import schema
from tests.incremental.conftest import hear_interrupts, processes, wait_for
from tests.support.json_schema import mistakes
from tests.support.projects import LIMITS, Project, edited, replace_in

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

GIT = ("git", "-c", "user.name=bench", "-c", "user.email=bench@localhost")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with the operator, committed."""
    import onnx

    made = Project.of("passes", tmp_path_factory.mktemp("project"))
    made.replace("ops/passes/spec.py", "    reference=", "    cpu_levels=True,\n    reference=")
    (made.root / ".gitignore").write_text("build/\n")
    (peers := made.root / "ops/passes/peers").mkdir()
    neg = '<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { y = Neg (x) }'
    onnx.save_model(onnx.parser.parse_model(neg), peers / "neg.onnx")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "as it is"]):
        subprocess.run([*GIT, *words], cwd=made.root, check=True)
    return made.root


def bench(project: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "doit", "bench", *words, "passes"]
    return subprocess.run(command, cwd=project, env=os.environ | variables, capture_output=True, text=True)


def test_an_operator_and_its_peers(project: Path) -> None:
    journal = Journal(str(Paths(project).state), None)
    journal.record(REPORT, key="k", detail={})
    journal.dump()
    done = bench(project, "--budget", "0.3", "--threads", "1", "--no-compile", OPMATRIX_CPU_LEVEL="2")
    assert done.returncode == 18 and done.stderr.startswith("passes: crash, 1 thread: its process died of SIGSEGV\n")
    found = json.loads(Paths(project).bench_record("passes").read_text())
    assert [*mistakes(found, schema("bench"), "bench")] == []
    assert Journal(str(Paths(project).state), None).key(REPORT) is None, "the next report shows the times"
    assert found["source"] == "ops/passes/bench.py"
    assert found["cpu_level"] == "x86-64-v2" and done.stdout.splitlines()[0].endswith(", x86-64-v2")
    plain, no_truth, crash = found["rows"]
    assert crash["failed"] == "its process died of SIGSEGV" and not plain["failed"]
    by_name = {one["name"]: one for one in plain["contestants"]}
    assert {name: one["skipped"] for name, one in by_name.items() if one["skipped"]} == {
        "reference compiled": "left out by --no-compile",
        "raises": "ZeroDivisionError: division by zero",
        "elsewhere": "no_such_module is not installed",
        "kills": "bench.py leaves it out of this row",
        "lost": "no library 'libx.so' in the project",
    }
    assert plain["bytes"] == 2 * 4 * 256 and plain["flops"] == 400 * 256
    errors = {name: one["error"] for name, one in by_name.items() if one["error"]}
    for name in ("torch library", "ORT library", "decomposed", "reference"):
        assert errors[name]["tolerance_used"] <= 1 and errors[name]["output"] == "y", name
    assert errors["wrong"]["absolute"] == pytest.approx(1.0) and errors["graph"]["tolerance_used"] > 1e5
    assert errors["itself"]["tolerance_used"] <= 1
    assert errors["Neg"]["problem"] == "it has no output that the truth has"
    ours = by_name["torch library"]
    assert ours["seconds"]["low"] <= ours["seconds"]["median"]
    assert ours["flops_per_second"] * ours["seconds"]["median"] == pytest.approx(400 * 256)
    ratios = {(one["ours"], one["peer"]): one for one in plain["ratios"]}
    assert {*ratios} == {
        ("torch library", "reference"), ("torch library", "wrong"),
        ("ORT library", "decomposed"), ("ORT library", "Neg"), ("ORT library", "itself"), ("ORT library", "graph"),
    }  # fmt: skip
    for one in ratios.values():  # how large they are depends on the machine; test_statistics.py has fake times
        assert 0 < one["low"] <= one["median"] <= one["high"]
    assert {one["error"]["problem"] for one in no_truth["contestants"] if one["error"]} == {"it is known"}
    assert f"{by_name['wrong']['name']} " in done.stdout and "build/bench/passes/bench.json" in done.stdout


HANGS = """
def hangs(x: Any) -> None:
    while True:
        pass


BENCH = Bench("""
LIMIT = LIMITS.replace("3600", "60")  # also of what is prepared before the peer is called


def test_a_peer_that_does_not_return_is_stopped(project: Path) -> None:
    """Also in a project that is not compiled."""
    path = project / "ops/passes/bench.py"
    row = '\n        Row(name="{}", inputs={{"x": Random(shape=(64,))}}, no_truth="known"),'
    rows = row.format("hang") + row.format("hang_2")
    peer = 'Function(name="hangs", function=hangs, compile=False, rows=("hang", "hang_2")),'
    with (
        edited(path, "\nBENCH = Bench(", HANGS),
        edited(path, "\n    ),\n    peers=(", f"{rows}\n    ),\n    peers=(\n        {peer}"),
        edited(project / "pyproject.toml", LIMITS, LIMIT),
    ):
        done = Project(project).stage("bench", "passes", "--threads", "1", "--row", "hang*", "--no-compile")
    assert done.returncode == 18 and done.stderr == (
        "passes: hang, 1 thread: the peer 'hangs' of ops/passes/bench.py did not return within 60 s and was stopped; "
        "later rows are left out. Fix it, or raise `seconds` in [tool.opmatrix.limits] of pyproject.toml\n"
    )
    found = json.loads(Paths(project).bench_record("passes").read_text())
    assert [row["name"] for row in found["rows"]] == ["hang"]


STOPPED = (
    " did not return within 2 s and was stopped. Fix it, or raise `seconds` in [tool.opmatrix.limits] of pyproject.toml"
)


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("\nBENCH =", "while True:\n    pass\n\nBENCH =", STOPPED),
        ('flops="400*N"', "flops=lambda x: any(iter(int, 1))", STOPPED),
        ("\nBENCH =", "import os\n\nos._exit(0)\n\nBENCH =", ": the process that read it ended with status 0"),
    ],
    ids=["module", "flops", "exit"],
)
def test_a_file_that_does_not_return_is_stopped(project: Path, old: str, new: str, error: str) -> None:
    limit = LIMITS.replace("3600", "2") if error == STOPPED else LIMITS
    with (
        edited(project / "ops/passes/bench.py", old, new),
        edited(project / "pyproject.toml", LIMITS, limit),
    ):
        done = Project(project).stage("bench", "passes")
    assert (done.returncode, done.stdout, done.stderr) == (18, "", f"ops/passes/bench.py{error}\n")


def test_sigterm_ends_it_as_ctrl_c(project: Path) -> None:
    here = project / "runs"
    touch = f"import pathlib\n\n\ndef hangs(x):\n    pathlib.Path({str(here)!r}).touch()"
    peer = f"{touch}\n    while True:\n        pass\n"
    with (
        edited(project / "ops/passes/bench.py", "\n\nBENCH = Bench(", f"\n{peer}\n\nBENCH = Bench("),
        edited(project / "ops/passes/bench.py", "    peers=(", '    peers=(Function(name="h", function=hangs),'),
    ):
        command = [sys.executable, "-m", "doit", "bench", "--threads", "1", "--row", "plain", "--no-compile", "passes"]
        process = subprocess.Popen(
            command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hear_interrupts
        )
        try:
            wait_for(here.exists)
            process.terminate()
            _, error = process.communicate()
        finally:
            process.kill()
    assert (process.returncode, error) == (143, "interrupted; the operators that were timed before are kept\n")
    wait_for(lambda: processes(project) == [])


AGAINST = ("--against", "HEAD", "--threads", "1", "--row", "plain", "--budget", "30")  # enough on a busy machine


@pytest.mark.deep
def test_an_operator_is_not_slower_than_itself(project: Path) -> None:
    """benchmarks/alarms.py counts how often it is called so."""
    done = bench(project, *AGAINST)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(Paths(project).bench_against("passes").read_text())
    assert [(row["side"], row["slower"]) for row in found["against"]] == [("torch", False), ("onnxruntime", False)]


@pytest.mark.deep  # real times: on a busy machine their noise can hide it; test_against.py has fake ones
def test_a_planted_slowdown_is_found(project: Path) -> None:
    """10% more passes."""
    replace_in(project / "native/passes/kernel.h", "pass < 200", "pass < 220")
    done = bench(project, *AGAINST)
    assert done.returncode == 18, done.stdout + done.stderr
    found = json.loads(Paths(project).bench_against("passes").read_text())
    assert [*mistakes(found, schema("against"), "against")] == []
    assert found["cpu_level"] == cpu_levels.name(max(cpu_levels.of_processor()))
    assert "passes is slower than at HEAD in " in done.stderr and "SLOWER" in done.stdout
    assert done.stderr.count("\n") == 1, "one clear message"
