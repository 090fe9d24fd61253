"""Failures by cause: what the last screen shows of one and of many, and annotations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from opmatrix.basics.errors import Cause
from opmatrix.basics.terminal import wrapped
from opmatrix.engine import causes as case_inputs
from opmatrix.engine.causes import Causes, annotation, brief, details, in_lines, summary
from opmatrix.engine.server_pool import Ending
from opmatrix.engine.step_failure import StepBlocked, StepFailed, failure_of
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from tests.docs.page import Write, parse
from tests.support.projects import ROOT

REPLAY = "python -m opmatrix verify relu"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def failed(name: str, sentence: str, *, group: str = "verify", file: str = "", line: int = 0) -> StepFailed:
    operator = name.partition("-")[0]
    step = Step(group=group, name=name, command=(group, operator), operator=operator)
    told = Cause(sentence=sentence, file=file, line=line, command=REPLAY)
    return StepFailed(step, summary="failed with exit code 10", output=f"{sentence}\ndetails", told=told)


def in_cell(opset: int, value: float = 0.5, **fields: object) -> StepFailed:
    sentence = f"relu-seed: {opset} of 40 elements differ, expected {value}"
    return failed(f"relu-custom@torch2.13-legacy-opset{opset}-ort1.31", sentence, **fields)  # type: ignore[arg-type]


def causes_of(*failures: StepFailed) -> Causes:
    causes = Causes()
    for failure in failures:
        causes.add(failure)
    return causes


def lines_of(*failures: StepFailed) -> list[str]:
    return summary([*causes_of(*failures)], rest="page", width=80)


def test_equal_failures_in_several_cells_are_one_cause() -> None:
    causes = Causes()
    assert [causes.add(in_cell(opset, opset * 1e-3)) for opset in (9, 12, 15)] == [0, 1, 2]
    assert causes.add(failed("relu-custom@torch2.13-legacy-opset17-ort1.31", "another message")) == 0
    assert causes.add(failed("gelu-custom@torch2.13-legacy-opset9-ort1.31", in_cell(9).cause.sentence)) == 0
    assert [len(one.failures) for one in causes] == [3, 1, 1]


def test_failures_at_one_place_are_one_cause_and_name_their_stages() -> None:
    place: dict[str, Any] = {"file": "native/relu/kernel.h", "line": 4}
    first = failed("relu-kernel@torch2.13", "y differs", group="register", **place)
    causes = causes_of(first, *(in_cell(opset, **place) for opset in (9, 12)))
    causes.add_blocked(StepBlocked("dist", first))
    [one] = causes
    assert one.steps == "1 step of register, 2 of verify failed, 1 step did not run"
    assert summary([one], rest="page", width=80) == [
        "",
        "FAILED native/relu/kernel.h:4",
        "  y differs",
        "  1 step of register, 2 of verify failed, 1 step did not run",
        f"  Replay: {REPLAY}",
    ]
    assert "The same in 1 step of register" in details(one)


def test_what_may_follow_from_a_contradiction_is_counted() -> None:
    """A wrong shape rule fails in `data`, and then a kernel that takes it for right crashes, and exports differ."""
    lines = lines_of(
        failed("relu-schema@torch2.13", "died of SIGABRT", group="register", file="native/relu/kernel.h", line=4),
        failed("relu", "the shape rule gives (2,)", group="data", file="ops/relu/spec.py", line=28),
        failed("relu-custom@torch2.13-legacy-opset9", "rank is lost", group="export", file="ops/relu/lowering.py"),
        failed("gelu-kernel@torch2.13", "y differs", group="register", file="native/gelu/kernel.h", line=7),
    )
    assert [line for line in lines if line.startswith("FAILED")] == [
        "FAILED ops/relu/spec.py:28",
        "FAILED native/gelu/kernel.h:7",
    ]
    assert lines[-1] == "2 further failures of the same operator may follow from this: page"


@pytest.mark.parametrize(
    ("how", "has_kernel", "named"),
    [
        ("died of SIGSEGV after 0.2 s, at case seed", True, True),
        ("died of SIGSEGV after 0.2 s, at case seed", False, False),
        ("did not end within 10 s and was stopped, at case seed", True, False),
    ],
)
def test_a_crash_of_a_kernel_has_the_command_that_names_the_line(
    tmp_path: Path, how: str, has_kernel: bool, named: bool
) -> None:
    if has_kernel:
        (tmp_path / "native/relu").mkdir(parents=True)
    step = Step(group="verify", name="relu-custom", command=("verify", "relu"), operator="relu")
    lines = lines_of(StepFailed(step, summary=how, died=True))
    assert ("  To find the crashing line, run `doit sanitize:relu`" in lines) is named


def test_a_hang_has_what_is_known_of_it_its_limit_and_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "native/relu").mkdir(parents=True)
    (tmp_path / "native/relu/kernel.h").write_text("template <typename T>\nvoid relu(TensorView<const T> x) {\n}\n")
    step = Step(group="verify", name="relu-custom", command=("verify", "relu"), operator="relu", seconds=10)
    (tmp_path / "log").write_text("$ command\n# at case seed\n")
    ending = Ending(status=-6, seconds=10.1, cpu=9.0, stopped="time", last_cpu=(0.97, 1.0))
    failure = failure_of(step, ending, tmp_path / "log")
    replay = "python -m opmatrix verify relu --case seed"
    assert lines_of(failure) == [
        "",
        "FAILED native/relu/kernel.h:2",
        "  did not end within 10 s and was stopped, at case seed",
        "  In its last 1.0 s it used 0.97 s of CPU time: it was computing",
        "  The limit is `seconds` in [tool.opmatrix.limits] of pyproject.toml",
        "  verify:relu-custom failed; line 2 is where the kernel begins",
        f"  Replay: {replay}",
        f"  Debug: python -m opmatrix compile relu --debug && gdb --args {replay} --debug",
        "  In the debugger, `run`, Ctrl-C and `bt` show the line where it hangs",
    ]
    assert details(*causes_of(failure)).count("In its last 1.0 s") == 1


def test_the_inputs_of_the_case_that_failed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the declaration: a process that crashed cannot print them."""
    monkeypatch.chdir(root)
    step = Step(group="verify", name="group_norm-custom", command=("verify", "group_norm"), operator="group_norm")
    given = (
        "  inputs: x float32 (3, 2, 1, 2), num_groups float32 (1,) = (2.0,), scale float32 (2,) = (2.0, 1.0), "
        "bias float32 (2,) = (1.0, 0.0); epsilon=0.0"
    )
    assert given in lines_of(StepFailed(step, summary="died of SIGSEGV after 0.2 s", died=True, case="seed"))
    for command in ("python -m opmatrix verify group_norm --case none", "python -m opmatrix data group_norm", "--case"):
        assert case_inputs.inputs_of(Paths(root), "group_norm", command) == ""


def test_a_failure_as_it_happens_takes_two_lines_below_its_step() -> None:
    cause = Cause(sentence="word " * 100, file="ops/relu/spec.py", line=3)
    lines = wrapped(brief(cause, 80), 80).split("\n")
    assert len(lines) == 3 and lines[0] == "" and all(len(line) <= 80 for line in lines)
    assert lines[1].startswith("  ops/relu/spec.py:3: word ") and lines[2].endswith(" ...")
    assert brief(cause, 0).count("\n") == 1, "in a pipe a line stays whole"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 500])
def test_the_summary_is_less_than_a_screen(count: int) -> None:
    names = [f"op{chr(97 + n % 26) * (1 + n // 26)}" for n in range(count)]
    causes = causes_of(
        *(failed(name, "word " * 70, file=f"native/op{n}/kernel.h", line=n) for n, name in enumerate(names))
    )
    assert len(causes) == count
    shown = wrapped("\n".join(summary([*causes], rest="build/report/index.html", width=80)), 80).split("\n")
    assert len(shown) <= 22, "the last line of the run and the prompt follow"
    assert sum(line.startswith("FAILED native/") for line in shown) == min(count, 8)
    assert ("492 more causes in build/report/index.html" in shown) == (count == 500)
    assert shown[-1].strip() == f"Replay: {REPLAY}"


def test_an_annotation_has_file_line_and_message_as_github_takes_them() -> None:
    causes = causes_of(
        failed("relu", "100% wrong: a, b", group="compile", file="native/relu,1/kernel.h", line=12),
        failed("gelu", "no file"),
    )
    first, second = [annotation(one.first.cause, title=one.steps, prefix="sub/") for one in causes]
    assert first == (
        "::error file=sub/native/relu%2C1/kernel.h,line=12,title=compile%3Arelu failed"
        f"::100%25 wrong: a, b%0AReplay: {REPLAY}"
    )
    assert second == f"::error title=verify%3Agelu failed::no file%0AReplay: {REPLAY}"


@pytest.mark.parametrize("count", [1, 2, 5, 30])
@pytest.mark.parametrize("words", [3, 200])
def test_the_verdict_has_at_most_eight_lines(count: int, words: int) -> None:
    sentence = " ".join(["word"] * words)
    failures = [failed(f"op{n}", sentence, file=f"native/op{n}/kernel.h", line=n + 1) for n in range(count)]
    lines = in_lines([*causes_of(*failures)], width=80, most=8)
    assert len(lines) <= 8 and all(len(line) <= 80 for line in lines)
    assert lines[0] == "FAILED native/op0/kernel.h:1" and lines[1].startswith("  word word word")
    assert (" ...", "")[words == 3] in lines[1 if words == 3 else 3]
    assert lines[2 if words == 3 else 4] == "  verify:op0 failed" and f"  Replay: {REPLAY}" in lines
    shown = sum(line.startswith("FAILED") for line in lines)
    assert (f"{count - shown} more cause" in lines[-1]) is (shown < count)
    assert shown == min(count, 5 if words == 3 else 3) or lines[-1].endswith(("more cause", "more causes"))


def test_a_command_that_is_longer_than_a_line_stays_whole() -> None:
    failure = failed("relu", "y differs", file="native/relu/kernel.h", line=4)
    command = f"{REPLAY} --lowering custom --cell torch2.13-legacy-opset18-ort1.31 --case a_case_with_a_name"
    failure.told = Cause(sentence="y differs", command=command)
    lines = in_lines([*causes_of(failure)], width=80, most=8)
    assert command in "\n".join(lines).replace(" \\\n     ", "")


PAGE = "docs/how-to/watch.md"


def written(path: str) -> Any:
    steps = parse(PAGE, (ROOT / PAGE).read_text()).steps
    return json.loads(next(step.text for step in steps if isinstance(step, Write) and step.path == path))


def test_the_problem_matchers_of_the_manual_find_file_line_and_sentence() -> None:
    [of_github] = written(".github/opmatrix.json")["problemMatcher"]
    of_editor, _ = written(".vscode/tasks.json")["tasks"][0]["problemMatcher"]
    assert of_github["pattern"] == of_editor["pattern"]
    place, message = of_github["pattern"]
    lines = lines_of(failed("relu", "expected ';' before 'for'", file="native/relu/kernel.h", line=12))
    at = next(n for n, line in enumerate(lines) if re.search(place["regexp"], line))
    found, said = re.search(place["regexp"], lines[at]), re.search(message["regexp"], lines[at + 1])
    assert found and said
    parts = (found[place["file"]], found[place["line"]], said[message["message"]])
    assert parts == ("native/relu/kernel.h", "12", "expected ';' before 'for'")


def test_the_problem_matchers_of_the_manual_find_the_compilers_errors() -> None:
    pattern = written(".vscode/tasks.json")["tasks"][0]["problemMatcher"][1]["pattern"]
    found = re.search(pattern["regexp"], "  native/relu/kernel.h:64:3: error: expected ';'")
    assert found and [found[pattern[key]] for key in ("file", "line", "column", "severity", "message")] == [
        "native/relu/kernel.h", "64", "3", "error", "expected ';'",
    ]  # fmt: skip
