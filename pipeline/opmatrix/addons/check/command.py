"""`doit check MODEL...`: print what is wrong with models, and where. A doit command.

`opmatrix check` needs no project: it works in an empty one in a temporary folder.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opmatrix.basics.errors import OpmatrixError, ToolchainError, UsageError, print_error
from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.basics.step_log import Progress, shown_by_thread
from opmatrix.basics.version import minor
from opmatrix.commands.base import CommandBase, as_typed, option
from opmatrix.commands.help import doit_command
from opmatrix.engine.lock import hold
from opmatrix.project.format import FORMAT
from opmatrix.project.measured import use_rows
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed, is_project, step_limits

if TYPE_CHECKING:
    from opmatrix.addons.check.arguments import CheckRequest
    from opmatrix.addons.check.print_findings import FindingPrinter
    from opmatrix.addons.check.run_parts import ModelChecks
    from opmatrix.addons.check.several import Answer
    from opmatrix.basics.finding import Finding

_QUIET = 10.0  # seconds before progress is shown
_POLL = 0.05  # seconds between two looks for lines that are known
_NEEDED = ("onnx", "onnxruntime", "numpy", "rich", "jinja2")


class Check(CommandBase):
    """Run each part in its own process, so that a crash, a hang or too much memory is a finding."""

    name = "check"
    doc_purpose = "print what is wrong with ONNX models, or with a torch model as exported, and where"
    doc_usage = "MODEL.onnx... | MODULE:FUNCTION | PATH/TO/FILE.py:FUNCTION"
    doc_description = (
        "A function takes nothing and returns (module, inputs), or (module, inputs, options): a torch.nn.Module, a "
        "tuple of tensors, and a dict of input_names, output_names and dynamic, {input: (axis name or None, ...)}. "
        "Several models get a line each. In a project, its libraries are taken as they are built, so run `doit` first; "
        "`opmatrix check` works in any folder. Exit codes: 0 no check failed, 1 a check failed, 2 usage error."
    )
    cmd_options = (
        option("shape", "shape of a random input, such as --shape x=1,3,48,192; once per input", []),
        option(
            "inputs", "an .npz file or a folder of data sets; default: those in the model's folder, else random inputs"
        ),
        option("against", "a model that is right: compare the outputs, and the values of the same names"),
        option("library", "a custom-op library of another project; its nodes are run, but not compared", []),
        option("ort", "also run in this version, such as 1.18; without its environment: check that it reads the model"),
        option("exporter", "of a function: legacy, dynamo, or both", "both"),
        option("opset", "of a function: the opset to export at", 18),
        option("rtol", "relative tolerance, for all floats; default: float32 1e-4, float64 1e-9, float16 1e-2"),
        option("atol", "absolute tolerance, for all floats; default: float32 1e-5, float64 1e-10, float16 1e-3"),
        option("seconds", "time limit of each model; default: 120, or that of a step if it is less"),
        option("megabytes", "memory limit of each model; default: 4000, or four times the model if that is more"),
    )

    def parse_execute(self, in_args: Sequence[str]) -> Any:
        """Accept options after the model too, which doit 0.37 does not."""
        return super().parse_execute(_options_first(as_typed(in_args, command=self.name)))

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        """Check models and print each finding at once."""
        # Imported here, because doit imports this module for every command.
        from opmatrix.addons.check.arguments import FORMS, parse

        try:
            if not args:
                raise UsageError(f"doit check takes one model or several; write {FORMS}")
            _require_packages()
            found = is_project(Path.cwd())
            here, models = Path.cwd(), dict.fromkeys(args)
            if found:
                use_rows(self._paths)
            requests = [parse(model, params, here, torch=lambda: minor(installed().torch)) for model in models]
            if not found and (function := next((r for r in requests if r.function), None)):
                raise UsageError(
                    f"{function.model!r}: a function is checked in a project, with its operators, and there is none in "
                    f"{str(here)!r}. Outside, check .onnx files; a new project: opmatrix new --project DIR"
                )
            if found:
                with interruptible():
                    return _check(requests, self._paths, _printer(), project=True)
            with interruptible(), _empty_project() as (paths, printer):
                return _check(requests, paths, printer, project=False)
        except OpmatrixError as error:
            print_error(error)
            return UsageError.exit_code
        except KeyboardInterrupt as error:
            print("interrupted", file=sys.stderr, flush=True)
            return code_of(error)


def _printer(watched: str = "") -> FindingPrinter:
    from opmatrix.addons.check.print_findings import FindingPrinter  # not for every command, either

    return FindingPrinter(sys.stdout, watched=watched)


@contextmanager
def _empty_project() -> Iterator[tuple[Paths, FindingPrinter]]:
    """Yield a project in a new folder, which is removed if nothing is in it that a message of the printer names."""
    root = Path(tempfile.mkdtemp(prefix="opmatrix-check-"))
    printer = _printer(str(root))
    (root / "dodo.py").touch()
    (root / "pyproject.toml").write_text(f"[tool.opmatrix]\nformat = {FORMAT}\n", encoding="utf-8")
    try:
        yield Paths(root), printer
    finally:
        if not printer.mentioned:
            shutil.rmtree(root, ignore_errors=True)


def _check(requests: Sequence[CheckRequest], paths: Paths, printer: FindingPrinter, *, project: bool) -> int:
    """Check the models and return the exit code. One prints its findings, several a line each, as they are known."""
    from opmatrix.addons.check.run_parts import ModelChecks

    command = f"{doit_command(paths.root)} check" if project else "opmatrix check"
    with hold(paths.lock) as lock, ModelChecks(paths, lock=lock, command=command, project=project) as checks:
        if requests[1:]:
            return _check_several(requests, paths, checks, printer, command)
        return _check_one(requests[0], checks, printer)


def _check_one(request: CheckRequest, checks: ModelChecks, printer: FindingPrinter) -> int:
    """Print the findings of one model, each when it is known."""
    checks.forget(request)
    with shown_by_thread(lambda: checks.doing, quiet=_QUIET) as pausing:

        def show(title: str, found: Sequence[Finding]) -> None:
            with pausing():
                printer.print_titled(title, found)

        try:
            checks.check(request, show)
        except KeyboardInterrupt:
            with pausing():
                printer.print_interrupted(checks.doing)
            raise
    printer.print_summary()
    return int(printer.counts["wrong"] > 0)


def _check_several(
    requests: Sequence[CheckRequest], paths: Paths, checks: ModelChecks, printer: FindingPrinter, command: str
) -> int:
    from opmatrix.addons.check.several import SeveralChecks, names

    several = SeveralChecks(paths, checks, requests, memory=step_limits(paths).megabytes)
    progress = Progress(quiet=_QUIET)
    code = 0

    def show_known(**patience: float) -> None:
        nonlocal code
        for request, answer in several.known(**patience):
            progress.clear()
            code = max(code, _line(request, answer, printer))

    several.start()
    try:
        while several.left():
            time.sleep(_POLL)
            show_known()
            progress.show(str(several))
    except KeyboardInterrupt:
        show_known(patience=0)
        printer.print_interrupted(names([request.asked for request in several.left()]))
        raise
    finally:
        progress.clear()
        printer.print_outcomes(command)
    return code


def _line(request: CheckRequest, answer: Answer, printer: FindingPrinter) -> int:
    """Print the line of one of several models and return its exit code."""
    from opmatrix.addons.check.parts import judge

    if answer.error:
        printer.print_outcome(request.asked, "unreadable", answer.error)
        return UsageError.exit_code
    outcome, text = judge(answer.findings, answer.known)
    printer.print_outcome(request.asked, outcome, text)
    return int(any(found.mark == "wrong" for found in answer.findings))


def _require_packages() -> None:
    """Raise ToolchainError where a package is missing, as in an installation of opmatrix alone."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ToolchainError(
            f"doit check needs {', '.join(_NEEDED)}; not installed for {sys.executable}: {', '.join(missing)}. "
            f"Install: pip install {' '.join(missing)}"
        )


def _options_first(words: Sequence[str]) -> list[str]:
    """Return the words with the options first. Each option of this command takes a value."""
    with_value = {f"--{option['long']}" for option in Check.cmd_options}
    options: list[str] = []
    others: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word.startswith("--"):
            options += [word, *islice(remaining, word in with_value)]
        else:
            others.append(word)
    return options + others
