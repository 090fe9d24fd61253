"""The limits of time and memory of a model in `opmatrix check`, and what a slow model and Ctrl-C leave to see."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import NodeProto

from opmatrix.addons.check import parts, per_node, run_model, run_parts
from opmatrix.addons.check.arguments import CheckRequest, parse
from opmatrix.addons.check.command import Check
from opmatrix.addons.check.parts import MEGABYTES, default_megabytes
from opmatrix.addons.check.per_node import References
from opmatrix.addons.check.run_parts import ModelChecks
from opmatrix.addons.check.several import Answer, SeveralChecks
from opmatrix.basics.errors import UsageError
from opmatrix.engine.server_pool import Ending
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from tests.addons.check.judged import judged
from tests.addons.check.outside import ENDLESS, RIGHT, started
from tests.incremental.conftest import processes, wait_for

MODELS = {"endless": ENDLESS, "right": RIGHT, "other": RIGHT}


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    for name, made in MODELS.items():
        onnx.save(made, tmp_path / f"{name}.onnx")
    return [f"{name}.onnx" for name in MODELS]


@pytest.mark.ort
def test_an_endless_model_hides_no_line_also_after_ctrl_c(tmp_path: Path, names: list[str]) -> None:
    """Its own time is not over when the line of the one behind it is printed."""
    process = started(tmp_path, *names)
    assert process.stdout
    try:
        known = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
    finally:
        process.kill()
    assert [line[2:26] for line in known] == ["right        right.onnx:", "right        other.onnx:"]
    assert "interrupted, so not judged: endless.onnx\n" in rest
    assert "2 models: 2 right\n" in rest
    assert (process.returncode, errors.splitlines()[-1:]) == (130, ["interrupted"])
    wait_for(lambda: processes(tmp_path) == [])


@pytest.mark.ort
def test_ctrl_c_leaves_the_findings_of_one_model_and_says_what_was_not_judged(tmp_path: Path, names: list[str]) -> None:
    process = started(tmp_path, names[0])
    try:
        wait_for(lambda: any(tmp_path.glob("opmatrix-check-*/build/log/check/*-run.log")))
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate()
    finally:
        process.kill()
    assert "  ✓ versions" in text
    assert text.splitlines()[-1] == f"interrupted, so not judged: check-run of {tmp_path / 'endless.onnx'}"
    assert process.returncode == 130


def request(folder: Path, label: str = "model", **more: Any) -> CheckRequest:
    (folder / "pyproject.toml").write_text("[tool.opmatrix]\nformat = 1\n")
    path = folder / f"{label}.onnx"
    path.touch()
    return CheckRequest(
        asked=path.name, model=str(path), label=label, function=False, ort="", opset=18, **{"megabytes": 1} | more
    )


def test_the_processes_of_a_model_share_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part takes 40 of 100 seconds here; what an earlier process has spent counts, too."""
    now, limits = [1000.0], []
    monkeypatch.setattr(run_parts, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def run(_: object, arguments: list[str], *__: object, seconds: float, megabytes: float) -> Ending:
        limits.append(seconds)
        now[0] += 40
        into, part = Path(arguments[3]), arguments[0].removeprefix("check-")
        known = {"libraries": [], "link": [], "own": False, "ran": True, "agrees": False, "differs": False}
        known |= {"inputs": "", "shapes": []}
        run_parts.finding.write(into / f"{part}.json", [run_parts.finding.ok("nodes", part)], **known)
        return Ending(status=0, seconds=40, cpu=40, stopped="", done=True)

    monkeypatch.setattr(ModelChecks, "run", run)
    with (tmp_path / "lock").open("w") as lock:
        checks = ModelChecks(Paths(tmp_path), lock=lock.fileno(), command="doit check")
        checks.check(request(tmp_path, seconds=100), lambda *_: None, spent=10)
    assert limits == [90, 50, 10]


def test_where_time_is_over_no_further_process_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelChecks, "run", lambda *_, **__: pytest.fail("it ran"))
    found: list[Any] = []
    with (tmp_path / "lock").open("w") as lock:
        checks = ModelChecks(Paths(tmp_path), lock=lock.fileno(), command="doit check")
        asked = request(tmp_path, seconds=7)
        checks.time_is_over(asked, Ending(status=-14, seconds=7, cpu=7, stopped=""), tmp_path / "log")
        checks.check(asked, lambda _, findings: found.extend(findings))
    assert found[0].mark == "note"
    assert "the model is not checked: the process did not end within 7 s and was stopped; --seconds" in found[0].text


@pytest.mark.parametrize(
    ("sizes", "megabytes"),
    [
        ({}, MEGABYTES),
        ({"weights.bin": 2e9}, 8000),  # the model names it
        ({"weights.bin": 2e9, "part.data": 1e9}, 12000),
        ({"others.bin": 2e9}, MEGABYTES),
        ({"other.onnx": 2e9}, MEGABYTES),
    ],
)
def test_a_large_model_may_take_four_times_its_size(tmp_path: Path, sizes: dict[str, float], megabytes: float) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(b"\x08\x08 weights.bin other.onnx part.data")
    for name, size in sizes.items():
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, int(size))  # takes no disk
    assert default_megabytes(model) == pytest.approx(megabytes, abs=1e-3)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf", "much"])
@pytest.mark.parametrize("option", ["seconds", "megabytes"])
def test_a_limit_is_a_number_above_0(tmp_path: Path, option: str, value: str) -> None:
    (tmp_path / "m.onnx").touch()
    options = {str(o["long"]): o["default"] for o in Check.cmd_options}
    with pytest.raises(UsageError, match=f"--{option} {value}: write a number above 0, such as 600"):
        parse("m.onnx", options | {option: value}, tmp_path, torch=str)


def several(folder: Path, *labels: str) -> SeveralChecks:
    checks = ModelChecks(Paths(folder), lock=0, command="doit check")
    made = SeveralChecks(Paths(folder), checks, [request(folder, label) for label in labels], memory=1)
    for label in labels:
        checks.folder(request(folder, label)).mkdir(parents=True)
    return made


def test_lines_come_in_the_order_of_the_arguments_but_for_slow_models(tmp_path: Path) -> None:
    made = several(tmp_path, "slow", "quick")
    made._answers["quick"] = Answer(error="no model")
    assert [*made.new_answers(patience=60)] == []
    assert str(made) == "1 of 2 models; at work: slow.onnx"
    made._began["slow"] = time.monotonic() - 61
    assert [r.label for r, _ in made.new_answers(patience=60)] == ["quick"]
    assert str(made) == "1 of 2 models; at work: slow.onnx"
    made._answers["slow"] = Answer(error="no model")
    assert [r.label for r, _ in made.new_answers(patience=60)] == ["slow"]
    assert made.left() == []


def test_where_all_that_run_are_slow_one_more_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    monkeypatch.setattr(SeveralChecks, "_work", lambda _, number: started.append(number))
    made = several(tmp_path, "a", "b", "c", "d")
    for label in ("c", "d"):
        (made._checks.folder(made._models[label])).rmdir()
    made._at_once = 2
    made.start()
    made._began |= dict.fromkeys(("a", "b"), time.monotonic())
    assert [*made.new_answers()] == [] and made._threads == 2
    made._began |= dict.fromkeys(("a", "b"), time.monotonic() - 60)
    assert [*made.new_answers()] == [] and made._threads == 3
    assert [*made.new_answers()] == [] and made._threads == 3, "the third one has not begun yet"


def test_small_memory_lets_models_run_one_after_the_other(tmp_path: Path) -> None:
    checks = ModelChecks(Paths(tmp_path), lock=0, command="doit check")
    requests = [request(tmp_path, label, megabytes=size) for label, size in (("a", 3000), ("b", 4000))]
    assert SeveralChecks(Paths(tmp_path), checks, requests, memory=7000)._at_once == 1
    assert SeveralChecks(Paths(tmp_path), checks, requests, memory=8000)._at_once == 2


CHAIN = """<ir_version: 8, opset_import: ["":18]> g (float[N] x) => (float[N] y) {
    a = Neg (x) b = Abs (a) c = Tanh (b) y = Neg (c) }"""


def test_a_node_with_a_slow_reference_is_not_compared_and_the_others_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = References.evaluate

    def endless(self: References, node: NodeProto, taken: Any) -> Any:
        while node.op_type == "Tanh":
            pass
        return evaluate(self, node, taken)

    monkeypatch.setattr(References, "evaluate", endless)
    monkeypatch.setattr(parts, "NODE_SECONDS", 5.0)  # of CPU time; the other nodes take milliseconds
    found = judged(CHAIN, tmp_path)
    assert found.outcome == "unknown"
    assert "1 node without a reference (Tanh): its reference takes more than 5 CPU s; --seconds" in found.reason
    assert "with onnx.reference, node by node: 3 nodes" in found.said("ok")


def test_where_the_time_is_over_the_nodes_before_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([80, 70, 60, 50, 40, 9, 8, 7, 6])  # of which an eighth is kept; each node asks twice
    monkeypatch.setattr(per_node.time_limits, "seconds_left", lambda: next(left))
    found = judged(CHAIN, tmp_path)
    assert found.outcome == "unknown"
    assert "2 nodes without a reference (Neg, Tanh): the time of the model is over" in found.reason
    assert "with onnx.reference, node by node: 2 nodes" in found.said("ok")


def test_where_a_run_takes_long_no_further_sizes_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = iter([100, 60])
    monkeypatch.setattr(run_model, "seconds_left", lambda: next(left))
    found = judged(CHAIN, tmp_path)
    assert found.outcome == "right"
    assert "sizes: no further sizes are tried, because a run takes too much of the model's time" in found.said("note")


def test_work_grows_with_the_nodes_and_not_with_their_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted are nodes in sessions of ONNX Runtime, bytes of their models, and evaluations by references."""
    counts: Counter[str] = Counter()
    sessions, run = OrtSessions.sessions, ReferenceRun.run

    def counted(self: OrtSessions, model: bytes | str, **more: Any) -> Any:
        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        counts.update(bytes=len(content), nodes=len(onnx.load_model_from_string(content).graph.node))
        return sessions(self, model, **more)

    def evaluated(self: ReferenceRun, *given: Any) -> Any:
        counts["evaluations"] += 1
        return run(self, *given)

    monkeypatch.setattr(OrtSessions, "sessions", counted)
    monkeypatch.setattr(ReferenceRun, "run", evaluated)
    found = []
    for count in (500, 1000, 2000):
        counts.clear()
        between = " ".join(f"t{n + 1} = Neg (t{n})" for n in range(count))
        head = '<ir_version: 8, opset_import: ["":18]> g (float[N] x) => (float[N] y)'
        assert judged(f"{head} {{ t0 = Abs (x) {between} y = Abs (t{count}) }}", tmp_path).outcome == "right"
        found.append(dict(counts))
    for before, after in pairwise(found):
        assert all(after[what] < 2.2 * before[what] for what in before), found
