"""Take the steps of a page in its own project, as a reader does: bash for its commands, one Python for its blocks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.docs.page import Command, NotRun, Page, PageError, Python, Shown, Step, Write
from tests.docs.project import environment, make_project
from tests.docs.transcript import difference
from tests.support.projects import LIMITS, give_an_hour

LIMIT = 3600.0  # seconds for one command or block: a busy machine takes longer
_LAST = 40  # lines of output in the message of a failure without a difference


def walk(page: Page, folder: Path, *, root: Path, prefix: Path = Path(sys.prefix), limit: float = LIMIT) -> None:
    """Take the steps of a page in order, in a new project in `folder`; raise PageError at the first failure.

    `prefix` is the environment of a page outside a checkout.
    """
    project = folder / "project"
    project.mkdir(parents=True)
    (folder / "home").mkdir()
    make_project(page.project, project, root=root)
    with _Reader(page=page, root=root, project=project, folder=folder, prefix=prefix, limit=limit) as reader:
        for step in page.steps:
            if problem := reader.take(step):
                raise PageError(f"{page.path}:{step.line}: {problem}")


@dataclass
class _Reader:
    """A reader at work. The folder and the exported variables of a command stay for the next commands."""

    page: Page
    root: Path
    project: Path
    folder: Path
    prefix: Path
    limit: float
    _interpreter: _Interpreter | None = field(default=None)

    def __enter__(self) -> Self:
        variables = environment(os.environ, kind=self.page.project, prefix=self.prefix, home=self.folder / "home")
        exported = (f"export {k}={shlex.quote(v)}\n" for k, v in variables.items())
        self._state.write_text(f"{''.join(exported)}cd {shlex.quote(str(self.project))}\n")
        self._here.write_text(str(self.project))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._interpreter:
            self._interpreter.end()

    @property
    def _state(self) -> Path:
        return self.folder / "state.sh"

    @property
    def _here(self) -> Path:
        """The file with the current folder, which is where a reader writes files."""
        return self.folder / "here"

    def take(self, step: Step) -> str:
        """Take a step; return its fault, or ""."""
        match step:
            case Command():
                problem = self._command(step)
                self._give_an_hour()
                return problem
            case Python():
                return self._python(step)
            case Write():
                path = Path(self._here.read_text()) / step.path
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("a" if step.append else "w", encoding="utf-8") as file:
                    file.write(step.text)
                return ""
            case Shown():
                return _shown(step, self.root)
            case NotRun():
                return ""

    def _command(self, step: Command) -> str:
        if step.setting not in ("", self.page.project):
            return ""
        state, here = shlex.quote(str(self._state)), shlex.quote(str(self._here))
        keep = f'code=$?; {{ export -p; printf "cd %q\\n" "$PWD"; }} >{state}; printf %s "$PWD" >{here}; exit $code'
        script = f". {state}\ntrap {shlex.quote(keep)} EXIT\neval {shlex.quote(step.text)}\n"
        output = self.folder / "output"
        with output.open("wb") as file:
            bash = subprocess.Popen(
                [_bash(), "--norc", "-c", script, "bash"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={},
                start_new_session=True,
            )
        try:
            code = bash.wait(self.limit)
        except subprocess.TimeoutExpired:
            code = None
        _end(bash)
        found = output.read_text(errors="replace")
        said = "\n".join([f"$ {step.text}".replace("\n", "\n> ")])
        if code is None:
            return f"{said}\nstill runs after {self.limit:g} s. It printed:\n{_last(found)}"
        wrong = [f"exit code {code}, expected {step.code}"] if code != step.code else []
        differs = difference(step.expected, found) if step.expected else ""
        if differs:
            wrong.append(f"the output differs (- expected, + found):\n{textwrap.indent(differs, '    ')}")
        if wrong and (not differs or "  ..." in differs.splitlines()):
            wrong.append(f"it printed:\n{_last(found)}")
        return "\n".join([said, *wrong]) if wrong else ""

    def _give_an_hour(self) -> None:
        """Let a step of a project that a command made take an hour, on a busy machine."""
        for path in (*self.folder.glob("*/pyproject.toml"), *self.folder.glob("*/*/pyproject.toml")):
            text = path.read_text()
            if "[tool.opmatrix]\n" in text and LIMITS not in text:
                give_an_hour(path.parent)

    def _python(self, step: Python) -> str:
        if not self._interpreter:
            self._interpreter = _Interpreter.start(self.prefix / "bin/python", self.folder, self._state)
        return self._interpreter.run(step, self.root / self.page.path, limit=self.limit)


@dataclass(frozen=True)
class _Interpreter:
    """The Python of a page, started at its first block, with the variables that earlier commands exported."""

    process: subprocess.Popen[bytes]
    answers: int
    output: IO[str]

    @classmethod
    def start(cls, python: Path, folder: Path, state: Path) -> _Interpreter:
        answers, theirs = os.pipe()
        program = [str(python), str(Path(__file__).with_name("interpreter.py")), str(theirs)]
        printed = folder / "printed"
        with printed.open("wb") as file:
            process = subprocess.Popen(
                [_bash(), "--norc", "-c", f'. {shlex.quote(str(state))}\nexec "$@"', "bash", *program],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                env={},
                pass_fds=(theirs,),
                start_new_session=True,
            )
        os.close(theirs)
        return cls(process, answers, printed.open(errors="replace"))

    def run(self, step: Python, path: Path, *, limit: float) -> str:
        """Execute a block; return its fault, or ""."""
        assert self.process.stdin
        request = json.dumps({"path": str(path), "line": step.line, "text": step.text})
        with contextlib.suppress(BrokenPipeError):  # it died: the answer is the end of the file
            self.process.stdin.write(request.encode() + b"\n")
            self.process.stdin.flush()
        answer, until = b"", time.monotonic() + limit
        while not answer.endswith(b"\n"):
            if not select.select([self.answers], [], [], max(0.0, until - time.monotonic()))[0]:
                return f"python: still runs after {limit:g} s. It printed:\n{_last(self.output.read())}"
            if not (piece := os.read(self.answers, 65536)):
                code = self.process.wait()
                how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
                return f"python: ended with {how}. It printed:\n{_last(self.output.read())}"
            answer += piece
        printed = self.output.read()
        if not (raised := json.loads(answer)):
            return ""
        also = f"It printed:\n{_last(printed)}" if printed else ""
        return f"python: raised\n{textwrap.indent(raised, '    ')}{also}"

    def end(self) -> None:
        """End the process, and close its answer pipe."""
        _end(self.process)
        assert self.process.stdin
        self.process.stdin.close()
        self.output.close()
        os.close(self.answers)


def _shown(step: Shown, root: Path) -> str:
    """Return why a block differs from its file, or ""."""
    path = root / step.path
    if not path.is_file():
        return f"shown: the repository has no file {step.path!r}"
    block, lines = step.text.splitlines(), path.read_text().splitlines()
    if any(lines[n : n + len(block)] == block for n in range(len(lines) - len(block) + 1)):
        return ""
    missing = next((line for line in block if line not in lines), None)
    which = "its lines are there, but not in a row" if missing is None else f"among others, it has no line {missing!r}"
    return f"shown: the block is no run of lines of {step.path}: {which}"


def _bash() -> str:
    """Return the path of bash: PATH of a page's commands need not have it."""
    return shutil.which("bash") or "/bin/bash"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and everything in its session's group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _last(text: str) -> str:
    lines = text.rstrip().splitlines()
    left = [f"... {len(lines) - _LAST} lines before"] if len(lines) > _LAST else []
    return textwrap.indent("\n".join(left + lines[-_LAST:]) or "(nothing)", "    ")
