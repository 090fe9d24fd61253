"""The runner of `doit check`, with a function of this file for its parts: their results count, not their exit codes."""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from opmatrix.addons.check.arguments import CheckRequest
from opmatrix.addons.check.parts import PartCall, Result, judge
from opmatrix.addons.check.print_findings import FindingPrinter
from opmatrix.addons.check.run_parts import ModelChecks, _deaths
from opmatrix.addons.check.several import SeveralChecks
from opmatrix.basics import finding
from opmatrix.engine.server_pool import Pool
from opmatrix.project.paths import Paths
from tests.support.projects import write_files

KNOWN = {"libraries": [], "link": [], "own": False, "ran": True, "agrees": False, "differs": False, "inputs": ""}


def entry(arguments: Sequence[str]) -> int:
    """Do what the file `what` names in place of a part of the check."""
    part = arguments[0].removeprefix("check-")
    if part == "models":  # dies at once
        os._exit(1)
    written = Path(arguments[arguments.index("--into") + 1]) / f"{part}.json"
    died = arguments[arguments.index("--died") + 1] if "--died" in arguments else ""
    match what := Path("what").read_text():
        case "end":
            finding.write(written, [finding.ok("nodes", "fine")], **KNOWN)
            os._exit(0)
        case "exit":
            sys.exit()
        case "nothing":
            finding.write(written, [], **KNOWN | {"ran": False})
        case "half":
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text('{"findings": [')
        case "optimizer" | "optimizer and kernel":  # dies where a run has the optimised graph, or in any run
            if part == "run" and (not died or what == "optimizer and kernel"):
                os.kill(os.getpid(), signal.SIGSEGV)
            found = finding.wrong("optimizer", died) if died else finding.ok("nodes", "fine")
            finding.write(written, [found], shapes=[], **KNOWN)
    return 0


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("optimizer", "✗ optimizer         the process died of SIGSEGV"),
        ("optimizer and kernel", "✗ runs              the process died of SIGSEGV"),
        ("end", "the process ended with exit code 0 before it was done"),
        ("exit", "the process ended with exit code 0 before it was done"),
        ("no file", "the process left no answer. Log: "),
        ("nothing", "the process answered nothing. Log: "),
        ("half", "the process left no answer. Log: "),
    ],
)
def test_a_part_without_an_answer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"what": what, "pyproject.toml": "[tool.opmatrix]\nformat = 1\n", "model.onnx": ""})
    model = str(tmp_path / "model.onnx")
    request = CheckRequest(asked="model.onnx", model=model, label="model", function=False, ort="", opset=18)
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    path = {"PYTHONPATH": os.pathsep.join(map(str, sys.path))}
    printer, paths = FindingPrinter(printed := io.StringIO()), Paths(tmp_path)
    with (tmp_path / "lock").open("w") as lock:
        checks = ModelChecks(paths, lock=lock.fileno(), command="doit check")
        checks._pool = Pool(paths, entry="test_check_run:entry", lock=lock.fileno(), variables=path)
        with checks:
            several = SeveralChecks(paths, checks, [request], memory=4000)
            several.start()
            while several.left():
                time.sleep(0.01)
                for _, answer in several.new_answers():
                    printer.print(answer.findings)
    assert printer.counts["wrong"] >= 1 and message in printed.getvalue()


@pytest.mark.parametrize(
    ("part", "ours", "mark"),
    [
        (PartCall(name="compare"), False, "note"),  # a limit, or a crash in what the comparison computes more
        (PartCall(name="compare"), True, "check"),
        (PartCall(name="compare", options=("--own",)), False, "wrong"),  # of a kernel of the project
        (PartCall(name="compare", options=("--own",)), True, "check"),
        (PartCall(name="run"), False, "wrong"),
        (PartCall(name="run"), True, "check"),
        (PartCall(name="read"), True, "check"),
    ],
)
def test_a_death_of_the_comparison_or_of_opmatrix_is_no_fault_of_the_model(
    part: PartCall, ours: bool, mark: str
) -> None:
    (found,) = _deaths(Result(died="did not end within 4 s and was stopped", ours=ours), part)
    assert (found.question if found.question == finding.CHECK else found.mark) == mark
    assert "the process did not end within 4 s" in found.text
    assert judge([found], {})[0] == ("wrong" if mark == "wrong" else "unknown")
    assert _deaths(Result(), part) == []
    # A check without a result fails, but the model does not.
    failed = finding.ours("in check-read: the process failed: KeyError")
    assert judge([failed, finding.wrong("check", "nothing was checked")], {}) == ("unknown", str(failed))
