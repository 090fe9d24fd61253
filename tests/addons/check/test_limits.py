"""The limits of time and memory of a model in `opmatrix check`, and what a slow model and Ctrl-C leave to see."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from onnx import NodeProto

from opmatrix.addons.check import parts, per_node, run_model, run_parts
from opmatrix.addons.check.arguments import CheckRequest
from opmatrix.addons.check.parts import MEGABYTES, default_megabytes
from opmatrix.addons.check.per_node import References
from opmatrix.addons.check.run_parts import ModelChecks
from opmatrix.addons.check.several import Answer, SeveralChecks
from opmatrix.engine.server_pool import Ending
from opmatrix.ort_checks.evaluator import ReferenceRun
from opmatrix.ort_checks.sessions import OrtSessions
from opmatrix.project.paths import Paths
from tests.addons.check.judged import judged
from tests.addons.check.outside import ENDLESS, RIGHT, started
from tests.incremental.conftest import processes, wait_for


def interrupted(folder: Path, *names: str, when: Callable[[Any], object]) -> tuple[Any, str, str]:
    """Start the check of models, send Ctrl-C after `when`; return what it returned, the exit code and the outputs."""
    models = {"endless": ENDLESS, "right": RIGHT, "other": RIGHT}
    for name in names:
        onnx.save(models[name], folder / f"{name}.onnx")
    process = started(folder, *(f"{name}.onnx" for name in names))
    try:
        found = when(process)
        process.send_signal(signal.SIGINT)
        text, errors = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    return found, text, errors


@pytest.mark.ort
def test_an_endless_model_hides_no_line_also_after_ctrl_c(tmp_path: Path) -> None:
    """Its own time is not over when the line of the one behind it is printed."""
    known, rest, errors = interrupted(
        tmp_path, "endless", "right", "other", when=lambda process: [process.stdout.readline() for _ in range(2)]
    )
    assert [line[2:26] for line in known] == ["right        right.onnx:", "right        other.onnx:"]
    assert "interrupted, so not judged: endless.onnx\n" in rest and "2 models: 2 right\n" in rest
    assert errors.splitlines()[-1:] == ["interrupted"]
    wait_for(lambda: processes(tmp_path) == [])


@pytest.mark.ort
def test_ctrl_c_leaves_the_findings_of_one_model_and_says_what_was_not_judged(tmp_path: Path) -> None:
    log = "opmatrix-check-*/build/log/check/*-run.log"
    _, text, _ = interrupted(tmp_path, "endless", when=lambda _: wait_for(lambda: any(tmp_path.glob(log))))
    assert "  ✓ versions" in text
    assert text.splitlines()[-1] == f"interrupted, so not judged: check-run of {tmp_path / 'endless.onnx'}"


def request(folder: Path, label: str = "model", **more: Any) -> CheckRequest:
    (folder / "pyproject.toml").write_text("[tool.opmatrix]\nformat = 1\n")
    path = folder / f"{label}.onnx"
    path.touch()
    more = {"megabytes": 1, "function": False, "ort": "", "opset": 18} | more
    return CheckRequest(asked=path.name, model=str(path), label=label, **more)


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
    checks = ModelChecks(Paths(tmp_path), lock=0, command="doit check")
    checks.check(request(tmp_path, seconds=100), lambda *_: None, spent=10)
    assert limits == [90, 50, 10]
    found: list[Any] = []
    asked = request(tmp_path, "other", seconds=7)
    checks.time_is_over(asked, Ending(status=-14, seconds=7, cpu=7, stopped=""), tmp_path / "log")
    checks.check(asked, lambda _, findings: found.extend(findings))
    assert len(limits) == 3, "no further process runs"
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


def test_how_many_models_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeveralChecks, "_work", lambda *_: None)
    made = several(tmp_path, "a", "b", "c", "d")
    for label in ("c", "d"):
        (made._checks.folder(made._models[label])).rmdir()
    made._at_once = 2
    made.start()
    threads = []
    for began in (0, 60, 60):  # where all that run are slow, one more runs; the third one has not begun then
        made._began |= dict.fromkeys(("a", "b"), time.monotonic() - began)
        assert [*made.new_answers()] == []
        threads.append(made._threads)
    assert threads == [2, 3, 3]
    requests = [request(tmp_path, label, megabytes=size) for label, size in (("e", 3000), ("f", 4000))]
    at_once = [SeveralChecks(Paths(tmp_path), made._checks, requests, memory=n)._at_once for n in (7000, 8000)]
    assert at_once == [1, 2], "small memory lets them run one after the other"


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
    judged(CHAIN, tmp_path).is_said(
        "unknown: ",
        "reason: 1 node without a reference (Tanh): its reference takes more than 5 CPU s; --seconds",
        "ok: with onnx.reference, node by node: 3 nodes",
    )


@pytest.mark.parametrize(
    ("asks", "left", "said"),
    [
        (per_node.time_limits, [80, 70, 60, 50, 40, 9, 8, 7, 6],  # of which an eighth is kept; each node asks twice
         ("unknown: ", "reason: 2 nodes without a reference (Neg, Tanh): the time of the model is over",
          "ok: with onnx.reference, node by node: 2 nodes")),
        (run_model, [100, 60],
         ("right: ", "note: sizes: no further sizes are tried, because a run takes too much of the model's time")),
    ],
    ids=["nodes", "runs"],
)  # fmt: skip
def test_what_was_computed_before_the_time_is_over_is_compared(
    asks: Any, left: list[int], said: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(left)
    monkeypatch.setattr(asks, "seconds_left", lambda: next(seconds))
    judged(CHAIN, tmp_path).is_said(*said)


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
