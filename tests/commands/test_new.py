"""`doit new` on the command line: options, answers in terminals, messages, exit codes, and written files."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.projects import Project

SCHEMA = "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor"
DOIT = [sys.executable, "-m", "doit", "new"]
FRAMEWORKS = ("torch", "onnx", "onnxruntime", "onnxscript", "numpy")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.copy(tmp_path, operators=())


def written(project: Project) -> list[str]:
    """Return the files of the project that were not there before."""
    found = [path.relative_to(project.root) for path in project.root.rglob("*") if path.is_file()]
    old = {"dodo.py", "pyproject.toml", "include", "binding", "__pycache__"}
    return sorted(str(path) for path in found if old.isdisjoint(path.parts))


FILES = [
    "native/scale_shift/kernel.h", "ops/scale_shift/README.md", "ops/scale_shift/cases.py",
    "ops/scale_shift/reference.py", "ops/scale_shift/spec.py",
]  # fmt: skip


def new(project: Project, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*DOIT, *arguments]
    return subprocess.run(command, cwd=project.root, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_new_files_and_next_steps_are_printed_and_nothing_is_overwritten(project: Project) -> None:
    done = new(project, "--schema", SCHEMA, "--domain", "my.domain")
    assert done.returncode == 0, done.stderr
    assert written(project) == FILES
    for path in FILES:
        number = 1 + ["TODO" in line for line in (project.root / path).read_text().split("\n")].index(True)
        assert re.search(rf"^wrote {path} .*\(first: line {number}\)$", done.stdout, re.MULTILINE)
    assert "scale_shift: passes all gates as a placeholder: y is a copy of x; other inputs are ignored." in done.stdout
    assert "next: doit\nthen: grep -rn TODO ops/scale_shift native/scale_shift\n" in done.stdout
    (project.root / "ops/scale_shift/spec.py").write_text("mine")
    done = new(project, "--schema", SCHEMA, "--domain", "my.domain")
    assert done.returncode == 2
    assert "ops/scale_shift/{README.md, cases.py, reference.py, spec.py}: there already" in done.stderr
    assert "native/scale_shift/kernel.h: there already" in done.stderr
    assert (project.root / "ops/scale_shift/spec.py").read_text() == "mine" and written(project) == FILES


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "describe the operator: give --schema 'my::scale_shift(Tensor x, Tensor scale, "),
        (["--schema", SCHEMA], "--domain is missing: the ONNX domain that the operator's node is in"),
        (["--schema=my::f(tensor x) -> Tensor", "--domain", "d"], "column 7: tensor is not .* did you mean 'Tensor'?"),
        (["--schema", SCHEMA, "--domain", "ai.onnx.ml"], "it is ONNX's own"),
        (["--schema", SCHEMA, "--domain", "com.microsoft"], "it is ONNX Runtime's own"),
        (["--schema", SCHEMA, "--domain", "a b"], "is not a name that a symbolic function can give to a node"),
        (["--schema", SCHEMA, "--domain", "d", "--name", "Big"], "allowed: at most 100 lower-case letters"),
        (["--schema", SCHEMA, "--override", "aten::sin", "--domain", "d"], "leave out --schema"),
        (["--shema", SCHEMA], "did you mean '--schema'"),
        (["my::f(Tensor x) -> Tensor"], "found 'my::f.* allowed: options alone. Put the schema in quotes"),
        (["--from-onnx", "no.onnx"], "--from-onnx no.onnx: no such file"),
        (["--from-onnx", "n" * 300], "n: no such file"),
        (["--schema", SCHEMA, "--domain", "d", "--name", "n" * 300], "allowed: at most 100 lower-case letters"),
        (["--from-onnx", "dodo.py", "--domain", "d"], "the domain is in the model; leave it out"),
    ],
)  # fmt: skip
def test_invalid_options_are_refused(project: Project, arguments: list[str], message: str) -> None:
    done = new(project, *arguments)
    assert done.returncode == 2 and not done.stdout
    assert re.search(message.replace("(", r"\(").replace(")", r"\)"), done.stderr), done.stderr
    assert "Traceback" not in done.stderr and not written(project)


def test_doit_new_imports_no_framework(project: Project) -> None:
    script = (
        "import sys; from opmatrix.commands.main import Program; sys.argv = ['doit', *sys.argv[1:]];"
        "code = Program().run(sys.argv[1:]);"
        f"found = [m for m in {FRAMEWORKS!r} if m in sys.modules]; sys.exit(str(found) if found else code)"
    )
    command = [sys.executable, "-c", script, "new", "--schema", SCHEMA, "--domain", "my.domain"]
    done = subprocess.run(command, cwd=project.root, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr


class Terminal:
    """`doit new` in a terminal of its own."""

    def __init__(self, project: Project, *arguments: str) -> None:
        self._master, slave = pty.openpty()

        def own() -> None:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the children of a background process ignore
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*DOIT, *arguments], cwd=project.root, stdin=slave, stdout=slave, stderr=slave, preexec_fn=own
        )
        os.close(slave)
        self.shown, self._read = "", 0

    def expect(self, text: str) -> None:
        """Read until `text` appears after what was expected before."""
        while (at := self.shown.find(text, self._read)) < 0:
            assert self._more(), f"{text!r} is not in {self.shown!r}"
        self._read = at + len(text)

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def press_until_it_ends(self, key: str) -> None:
        """Press a key again if it arrived between the question and the read, which CPython then does not leave: such a
        process sleeps, and one that is about to end is ready to run, also on a busy machine. A second key would
        interrupt its end."""
        while self.process.poll() is None:
            self.type(key)
            looks = 0
            while self.process.poll() is None and looks < 500:
                time.sleep(0.01)
                state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
                looks = looks + 1 if state == "S" else 0

    def end(self) -> int:
        while self._more():
            pass
        os.close(self._master)
        return self.process.wait()

    def _more(self) -> bool:
        """Read the new output; return False at its end."""
        try:
            more = os.read(self._master, 4096)
        except OSError:  # the other end is closed
            return False
        self.shown += more.decode().replace("\r\n", "\n")
        return bool(more)


@pytest.fixture
def terminal(project: Project) -> Iterator[Terminal]:
    started = Terminal(project)
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.wait()


def test_doit_new_asks_in_a_terminal(project: Project, terminal: Terminal) -> None:
    for question, answer in (
        ("> ", "my::scale_shift(tensor x) -> Tensor"),
        ("did you mean 'Tensor'?\n> ", SCHEMA),
        ("ONNX domain [my]: ", "com.microsoft"),
        ("ONNX Runtime's own", None),
        ("ONNX domain [my]: ", ""),
        ("name of its folder and its kernel [scale_shift]: ", ""),
        ("name of its node in ONNX [ScaleShift]: ", "Scaled"),
    ):
        terminal.expect(question)
        if answer is not None:
            terminal.type(f"{answer}\n")
    assert terminal.end() == 0, terminal.shown
    assert written(project) == FILES
    assert 'OnnxOp(domain="my", op_type="Scaled")' in (project.root / "ops/scale_shift/spec.py").read_text()


@pytest.mark.parametrize("key", ["\x03", "\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_ctrl_c_stops_the_questions(project: Project, terminal: Terminal, key: str) -> None:
    terminal.expect("> ")
    terminal.type(SCHEMA + "\n")
    terminal.expect("ONNX domain [my]: ")
    terminal.press_until_it_ends(key)
    assert terminal.end() == 130
    assert "interrupted; nothing was written" in terminal.shown and "Traceback" not in terminal.shown
    assert not written(project)


def test_doit_new_asks_only_for_missing_options(project: Project) -> None:
    terminal = Terminal(project, "--schema", SCHEMA)
    terminal.expect("ONNX domain [my]: ")
    terminal.type("my.domain\n")
    assert terminal.end() == 0, terminal.shown
    assert written(project) == FILES and "name of" not in terminal.shown
