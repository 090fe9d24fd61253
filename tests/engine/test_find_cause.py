"""The cause of a failed step: one sentence, file and line, and the command that repeats it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from opmatrix.basics import step_log
from opmatrix.basics.errors import Cause, ExportError, OpmatrixError
from opmatrix.basics.files import load_module
from opmatrix.engine.find_cause import find_cause, line_of_field
from opmatrix.engine.server_pool import Ending
from opmatrix.engine.step_failure import failure_of
from opmatrix.project.cells import Cell
from opmatrix.records.step import CheckKey, Step
from tests.support.projects import write_files

CELL = "torch2.13-dynamo-opset18-ort1.31"
COMPILE = Step(group="compile", name="relu", command=("compile", "relu"), operator="relu")
SPEC = """from opmatrix.spec import OpSpec

SPEC = OpSpec(
    name="relu",
    inputs=(Input(name="x"),),
    outputs=(
        Output(name="y"),
        Output(
            name="z",
            shape=SameAs(input="w"),
        ),
    ),
    tolerances={
        "custom": {"float32": Tolerance(rtol=1)},
    },
)
"""


NOT_DECLARED = "MODELS[0].attributes: found 'eps'. Declare it in ops/relu/spec.py{}: attributes=(Attribute(...),)"


def step(group: str, **fields: object) -> Step:
    whole = {"name": "relu-custom", "command": (group, "relu"), "operator": "relu", "lowering": "custom", **fields}
    return Step(group=group, **whole)  # type: ignore[arg-type]  # fields of several types


@pytest.mark.parametrize(
    ("group", "said"),
    [
        ("data", "cannot write 'build/data/relu/input_0.pb': No space left on device. Is the folder writable, and is "
         "there space left?"),
        ("export", "failed with exit code 1, and could not write to its log 'build/log/export/relu.log'. Is the folder "
         "writable, and is there space left?"),
        ("compile", "ninja: error: writing 'kernel.o.rsp': No space left on device"),
        ("compile", "cc1plus: fatal error: error writing to /tmp/ccX.s: No space left on device"),
        ("verify", "cannot write 'build': Disk quota exceeded. Is the folder writable, and is there space left?"),
        ("cases", "[Errno 30] Read-only file system: 'build/cases/relu/record.json'"),
        ("register", "RuntimeError: [Errno 5] Input/output error"),
    ],
)  # fmt: skip
def test_a_full_disk_is_the_fault_of_no_file(root: Path, group: str, said: str) -> None:
    found = find_cause(step(group), [said], root=root)
    assert (found.where, found.begins, found.sentence) == ("", "", said)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    files = {
        "native/relu/kernel.h": "// relu(x)\n\ntemplate <typename T>\nvoid relu(TensorView<const T> x) {\n}\n",
        "ops/relu/spec.py": SPEC,
        "ops/relu/lowering.py": "def custom(g, x):\n    return g\n\n\ndef decomposed(g, x):\n    return g\n",
        "ops/relu/reference.py": "import numpy\n\n\ndef relu(x):\n    return x\n",
    }
    write_files(tmp_path, files)
    return tmp_path


@pytest.mark.parametrize("path", ["native/relu/kernel.h", "{root}/native/relu/kernel.h"])
def test_the_first_error_of_a_compiler(root: Path, path: str) -> None:
    path = path.format(root=root)
    output = [
        "$ ninja -C build",
        "\x1b[01m\x1b[K" + f"{path}: In function 'f':",
        f"\x1b[01m\x1b[K{path}:12:3:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kexpected ';'",
        f"{path}:20:3: error: follows from it",
    ]
    cause = find_cause(COMPILE, output, root=root)
    assert cause == Cause(sentence="expected ';'", file="native/relu/kernel.h", line=12)
    assert cause.where == "native/relu/kernel.h:12"


@pytest.mark.parametrize(
    "said",
    [
        "/p/native/relu/kernel.h:3:60: runtime error: store to null pointer",
        "==1==ERROR: AddressSanitizer: heap-buffer-overflow on a",
    ],
)
def test_what_a_sanitizer_found_has_the_line_of_the_fault(root: Path, said: str) -> None:
    """Not the commands above it, nor the line at which the kernel begins; the second names it in its stack alone."""
    output = ["/bin/python -m opmatrix compile relu --sanitized", "at case odd_sizes_float32", said]
    frames = ["    #0 0x7f in memcpy native/none.h:1", "    #1 0x7f in void relu<float>(...) native/relu/kernel.h:3"]
    failed = step("sanitize", lowering=None)
    cause = find_cause(failed, [*output, *frames], root=root)
    sentence = said.removeprefix("/p/native/relu/kernel.h:3:60: ").removeprefix("==1==")
    assert cause == Cause(sentence=sentence, file="native/relu/kernel.h", line=3)
    assert find_cause(failed, [*output[:2]], root=root).line == 4, "without one, where the kernel begins"


@pytest.mark.parametrize(
    ("message", "line", "sentence"),
    [
        ("ops/relu/spec.py:3: NameError: name 'OpSpek' is not defined", 3, "NameError: name 'OpSpek' is not defined"),
        ("ops/relu/spec.py: outputs[1].shape.input: found 'w'", 10, "outputs[1].shape.input: found 'w'"),
        ("ops/relu/spec.py: outputs['z'].shape: version 1 is published", 10, None),
        ("ops/relu/spec.py: tolerances['custom']['float32'].rtol: found 1", 14, None),
        ("ops/relu/spec.py: min_opset: found 3", 3, None),  # not in the file, so where the value begins
        ("ops/relu/cases.py: missing; it defines MODELS", 0, "missing; it defines MODELS"),
        (f"ops/relu/cases.py: {NOT_DECLARED.format('')}", 0, NOT_DECLARED.format(":3")),
    ],
)
def test_the_line_of_a_mistake_in_a_declaration(root: Path, message: str, line: int, sentence: str | None) -> None:
    cause = find_cause(step("declaration"), [message, "ops/relu/spec.py: another"], root=root)
    assert (cause.file, cause.line) == (message.partition(":")[0], line)
    assert cause.sentence == (sentence or message.partition(": ")[2])
    assert cause.place == cause.where


def test_a_file_that_is_no_python_has_no_lines(root: Path) -> None:
    (root / "ops/relu/spec.py").write_text("SPEC = (\n")
    assert line_of_field(root / "ops/relu/spec.py", "name") == 0
    assert line_of_field(root / "none.py", "name") == 0


@pytest.mark.parametrize(
    ("failed", "where"),
    [
        (step("verify"), "native/relu/kernel.h:4"),
        (step("verify", lowering="decomposed"), "ops/relu/lowering.py:5"),
        (step("export"), "ops/relu/lowering.py:1"),
        (step("data"), "ops/relu/reference.py:4"),
        (step("register", check=CheckKey("relu", "kernel")), "native/relu/kernel.h:4"),
        (step("register", check=CheckKey("relu", "gradient")), "ops/relu/spec.py:3"),  # it has no torch_op.py
        (step("environment", operator=""), ""),
    ],
)
def test_a_message_without_a_file_leads_to_the_file_that_decides(root: Path, failed: Step, where: str) -> None:
    cause = find_cause(failed, ["3 of 4 elements differ"], root=root)
    assert cause.where == where
    assert cause.place == (f"{where}, in {cause.begins}" if where else "")


def test_the_replay_of_a_message_is_the_command(root: Path) -> None:
    command = "python -m opmatrix verify relu --case seed"
    lines = [f"relu-custom-seed@{CELL}: 3 of 4 elements differ. Also plain. Replay: {command}", "another"]
    cause = find_cause(step("verify"), lines, root=root)
    assert (cause.sentence, cause.command) == ("relu-custom-seed: 3 of 4 elements differ. Also plain", command)


def test_a_traceback(root: Path) -> None:
    own = f'  File "{root}/ops/relu/reference.py", line 5, in relu'
    lines = ["Traceback (most recent call last):", own, "    x / 0", '  File "/a.py", line 1, in f', "ValueError: no"]
    cause = find_cause(step("data"), lines, root=root)
    assert (cause.sentence, cause.where) == ("ValueError: no", "ops/relu/reference.py:5")


def test_a_step_without_output_and_with_long_lines(root: Path) -> None:
    assert find_cause(COMPILE, ["$ ninja"], root=root).sentence == "failed without a message"
    began = time.process_time()
    sentence = find_cause(COMPILE, ["word " * 1000] * 300, root=root).sentence
    assert sentence.startswith("word word") and len(sentence) < 500
    assert time.process_time() - began < 30  # CPU seconds: 0.05, or one for each line


# What the step itself writes to its log.


def logged(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: OpmatrixError, root: Path) -> str:
    monkeypatch.setenv(step_log.LOGGED, "1")
    step_log.log_cause(error, root)
    return capfd.readouterr().out


def test_a_step_can_say_it(root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    told = Cause(sentence="y is wrong", file="native/relu/kernel.h", line=9, command="python -m opmatrix verify relu")
    log = logged(capfd, monkeypatch, ExportError("array\nof lines", cause=told), root)
    assert step_log.logged_cause(log) == told and step_log.visible_lines(log) == ""
    path = root / "log"
    path.write_text(f"$ command\n{log}array\nof lines\n")
    failure = failure_of(step("verify"), Ending(status=10, seconds=1.0, cpu=0.0, stopped=""), path)
    assert failure.cause == told and failure.output == "array\nof lines"


def test_an_error_that_passes_a_file_of_the_operator(
    root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a lowering, whose exception torch's exporter wraps in one of its own."""
    path = root / "ops/relu/lowering.py"
    path.write_text("def custom(g, x):\n    value = 1\n    return g(value)\n")

    def g(value: int) -> None:
        raise ValueError("no such node")

    try:
        try:
            load_module(path, "lowering").custom(g, 1)
        except ValueError as inner:
            raise ExportError("torch refused") from inner
    except ExportError as error:
        log = logged(capfd, monkeypatch, error, root)
    assert step_log.logged_cause(log) == Cause(file="ops/relu/lowering.py", line=3)
    told = step_log.logged_cause(log)
    found = find_cause(step("export", cell=Cell.parse(CELL)), ["torch refused"], root=root, told=told)
    assert (found.sentence, found.where) == ("torch refused", "ops/relu/lowering.py:3")


@pytest.mark.parametrize("line", ["# cause [", "# cause []", '# cause {"a": 1}', '# cause {"line": "1"}', ""])
def test_a_line_that_is_no_cause(line: str) -> None:
    """A kernel may print anything."""
    assert step_log.logged_cause(f"{line}\n") is None


def test_a_stage_by_hand_prints_no_cause(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    step_log.log_cause(ExportError("x", cause=Cause(sentence="y")), root)
    assert capfd.readouterr().out == ""
