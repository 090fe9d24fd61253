"""`doit bench [OPERATOR ...]`: how fast an operator is, compared with its peers, or with a revision."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opmatrix.commands.base import CommandBase, option, report_again
from opmatrix.engine.lock import hold
from opmatrix.errors import BenchError, OpmatrixError, UsageError, print_error, printable
from opmatrix.interrupts import code_of, interruptible
from opmatrix.project.paths import Paths

if TYPE_CHECKING:
    from opmatrix.declaration.load import Operator

BUDGET = 3.0


class Bench(CommandBase):
    """Compile the operators, and run the stage of the same name in a process for each."""

    name = "bench"
    doc_purpose = "how fast an operator is, compared with its peers and the machine, or with a revision"
    doc_usage = "[OPERATOR ...]"
    doc_description = (
        "Times the rows of ops/<name>/bench.py, on one thread and on all, in torch and in ONNX Runtime, with peers, a "
        "copy loop and an FMA loop. Prints a table and writes build/bench/<name>/bench.json. With --against REV, "
        "times this build and that of a git revision in turns, and returns 18 if a row is slower, beyond the noise of "
        "the run. Without an operator: all that have a bench.py."
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
            from opmatrix.commands.bench_revision import commit_of  # here, as below: doit imports this module always

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

        found = usable(self._paths, names)
        if not names:
            found = [o for o in found if self._paths.bench(o.name).is_file()]
            if not found:
                raise UsageError("doit bench: no operator has a file ops/<name>/bench.py. Name an operator to time the "
                                 "largest cases of its cases.py, or write the file")  # fmt: skip
        for operator in found:
            if why := why_not(operator):
                raise UsageError(f"doit bench: {operator.name}: {why}")
        return found

    def _run(self, operator: Operator, params: Mapping[str, Any], commit: str) -> int:
        """Run the stage; return its exit code."""
        words = ["--budget", str(params["budget"])]
        words += ["--threads", str(params["threads"])] if params["threads"] else []
        words += ["--row", params["row"]] if params["row"] else []
        words += ["--no-compile"] if params["no_compile"] else []
        if commit:
            from opmatrix.commands.bench_revision import Revision

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


def why_not(operator: Operator) -> str:
    """Return why an operator cannot be timed, or ""."""
    from opmatrix.declaration.torch_signature import has_ort_library, has_torch_library

    if has_torch_library(operator.spec) or has_ort_library(operator.spec):
        return ""
    return "opmatrix builds no library of it, because torch and ONNX Runtime have the kernels: there is nothing to time"


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
