"""`doit bench [OPERATOR ...]`: how fast an operator is, compared with its peers, or with its build at a revision."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import BenchError, OpmatrixError, UsageError, print_error, printable
from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.commands.base import CommandBase, option, report_again
from opmatrix.declaration.load import Operator
from opmatrix.engine.lock import hold
from opmatrix.engine.shadow import Shadow
from opmatrix.project.paths import Paths

BUDGET = 3.0


class Bench(CommandBase):
    """Compile the operators, and run the stage of the same name in a process for each."""

    name = "bench"
    doc_purpose = "how fast an operator is, compared with its peers, or with a revision"
    doc_usage = "[OPERATOR ...]"
    doc_description = (
        "Times the rows of ops/<name>/bench.py, on one thread and on all, in torch and in ONNX Runtime, with peers. "
        "Prints a table and writes build/bench/<name>/bench.json. With --against REV, times this build and that of a "
        "git revision in turns, and returns 18 if a row is slower, beyond the noise of the run. Without an operator: "
        "all that have a bench.py."
    )
    cmd_options = (
        option(
            "budget",
            "seconds for a row at most, fewer if its intervals become narrow; --against: 10 times as many",
            BUDGET,
        ),
        option("threads", "only this number of threads; 0: one thread, and all processors", 0),
        option("row", "only rows with this name, or that match this pattern"),
        option("against", "a git revision, such as HEAD~1 or main"),
        {"name": "no_compile", "long": "no-compile", "type": bool, "default": False, "help": "leave out torch.compile"},
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        """Time each operator. Returns the first exit code of those that failed."""
        failed = 0
        if not params["budget"] > 0:
            raise UsageError(f"doit bench: --budget takes seconds above 0, found {params['budget']:g}")
        operators = self._operators(args)
        commit = ""
        if params["against"]:
            commit = commit_of(self._paths.root, params["against"])
        try:
            if code := _compile(self._paths, operators):
                return code
            with interruptible(), hold(self._paths.lock):
                for operator in operators:
                    try:
                        code = self._run(operator, params, commit)
                        if not commit:
                            report_again(self._paths)
                    except OpmatrixError as error:  # of one operator
                        print_error(error)
                        code = error.exit_code
                    failed = failed or code
        except KeyboardInterrupt as error:
            print("interrupted; the operators that were timed before are kept", file=sys.stderr, flush=True)
            return code_of(error)
        return failed

    def _operators(self, names: Sequence[str]) -> list[Operator]:
        from opmatrix.declaration.isolated import usable  # here: doit imports this module for every command
        from opmatrix.signature.signature import has_ort_library, has_torch_library

        operators = usable(self._paths, names)
        if not names:
            operators = [o for o in operators if self._paths.bench(o.name).is_file()]
            if not operators:
                raise UsageError("doit bench: no operator has a file ops/<name>/bench.py. Name an operator to time the "
                                 "largest cases of its cases.py, or write the file")  # fmt: skip
        for operator in operators:
            if not has_torch_library(operator.spec) and not has_ort_library(operator.spec):
                raise UsageError(
                    f"doit bench: {operator.name}: opmatrix builds no library of it, because torch and ONNX Runtime "
                    "have the kernels: there is nothing to time"
                )
        return operators

    def _run(self, operator: Operator, params: Mapping[str, Any], commit: str) -> int:
        words = ["--budget", str(params["budget"])]
        words += ["--threads", str(params["threads"])] if params["threads"] else []
        words += ["--row", params["row"]] if params["row"] else []
        words += ["--no-compile"] if params["no_compile"] else []
        if commit:
            old = Revision(paths=self._paths, operator=operator, rev=params["against"], commit=commit)
            old.build()
            old.copy_libraries()
            words += ["--rev", params["against"], "--commit", commit]
        command = [sys.executable, "-m", "opmatrix", "bench", operator.name, *words]
        sys.stdout.flush()
        code = subprocess.run(command, cwd=self._paths.root).returncode
        if code < 0:
            raise BenchError(f"doit bench: the process of {operator.name} died of signal {-code}")
        return code


def _compile(paths: Paths, operators: Sequence[Operator]) -> int:
    """Bring the libraries up to date as doit does. Return its exit code where no step ran, as in a build folder that is
    locked; raise BenchError where a step failed."""
    steps = [f"compile:{operator.name}" for operator in operators]
    done = subprocess.run([sys.executable, "-m", "doit", *steps], cwd=paths.root, capture_output=True, text=True)
    said = printable(f"{done.stdout}{done.stderr}".strip())
    if done.returncode == 1:
        raise BenchError(f"{said}\ndoit bench times only what compiles. Run: doit {' '.join(steps)}")
    if done.returncode:
        print_error(said)
    return done.returncode


_LIBRARIES = "lib*.so"


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the project's folder. Raises UsageError where there is no git."""
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True)
    except FileNotFoundError as error:
        raise UsageError("--against takes a revision of git, and there is no git on PATH. Install it") from error


def commit_of(root: Path, rev: str) -> str:
    """Return the commit of a revision. Raises UsageError outside a repository, and for an unknown revision."""
    if _git(root, "rev-parse", "--git-dir").returncode:
        raise UsageError(f"--against takes a revision of git, and {str(root)!r} is in no git repository")
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
    if found.returncode:
        raise UsageError(f"--against: git knows no revision {rev!r}, allowed: a commit, a branch or a tag")
    return found.stdout.decode().strip()


@dataclass(frozen=True, kw_only=True)
class Revision:
    """An operator at a revision: its files in ops/ and native/. Headers of opmatrix and other operators are today's, so
    that only the operator differs."""

    paths: Paths
    operator: Operator
    rev: str
    commit: str

    def build(self) -> None:
        """Compile the operator in a shadow of the project. Raises UsageError if the revision lacks it, BenchError if it
        does not compile today."""
        name, real = self.operator.name, self.paths
        if _git(real.root, "cat-file", "-e", f"{self.commit}:./ops/{name}/spec.py").returncode:
            raise UsageError(
                f"--against: {self.rev} has no ops/{name}/spec.py: the operator is newer. Choose a later revision"
            )
        files = [f"ops/{name}"]
        if not _git(real.root, "cat-file", "-e", f"{self.commit}:./native/{name}").returncode:
            files.append(f"native/{name}")
        taken = _git(real.root, "archive", "--format=tar", self.commit, *files)
        if taken.returncode:
            raise UsageError(f"--against: git archive {self.rev}: {taken.stderr.decode().strip()}")
        uses = (*self.operator.spec.uses,)
        root = real.bench_shadow(name)
        shadow = Shadow(real=real, root=root, name=name, own=("compile", "generated"), uses=uses)
        for folder in (shadow.paths.op(name), shadow.paths.kernel(name).parent):
            shutil.rmtree(folder, ignore_errors=True)
        shadow.make()
        for folder in (shadow.paths.op(name), shadow.paths.kernel(name).parent):
            shutil.rmtree(folder, ignore_errors=True)  # the links to the files of today
        with tarfile.open(fileobj=BytesIO(taken.stdout)) as archive:
            archive.extractall(root, filter="data")
        for stage in ("codegen", "compile"):
            command = [sys.executable, "-m", "opmatrix", stage, name]
            done = subprocess.run(command, cwd=root, capture_output=True, text=True)
            if done.returncode:
                said = printable(f"{done.stdout}{done.stderr}".strip())
                raise BenchError(f"{said}\n{name} at {self.rev} fails in {stage} with this opmatrix and its headers. "
                                 "Choose a revision that it compiles")  # fmt: skip

    def copy_libraries(self) -> None:
        """Make a shadow with copies of today's libraries. The second process of this build, which measures the noise,
        loads them: the build of the revision has other files, too."""
        name, real = self.operator.name, self.paths
        shadow = Shadow(
            real=real, root=real.bench_again(name), name=name, own=("compile",), uses=self.operator.spec.uses
        )
        shadow.make_anew()
        folder = shadow.paths.compile_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        for path in (*real.compile_folder(name).glob(_LIBRARIES), real.torch_version(name)):
            if path.is_file():
                shutil.copy(path, folder)
