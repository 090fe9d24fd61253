"""Check models, and print the findings in a terminal: one line each, with a mark, so that no colour is needed."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from rich.console import Console
from rich.text import Text

from opmatrix.addons.check.arguments import CheckRequest
from opmatrix.addons.check.parts import OUTCOMES, Outcome, judge
from opmatrix.addons.check.run_parts import ModelChecks
from opmatrix.addons.check.several import Answer, SeveralChecks, names
from opmatrix.basics.errors import UsageError, many, printable
from opmatrix.basics.finding import Finding, Mark
from opmatrix.basics.step_log import Progress, shown_by_thread
from opmatrix.commands.main import doit_command
from opmatrix.engine.lock import hold
from opmatrix.project.paths import Paths
from opmatrix.project.settings import FORMAT, step_limits

# The mark, the mark for a terminal without Unicode, and the colour; rich honours NO_COLOR.
_MARKS: Mapping[Mark, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "wrong": ("✗", "X", "red"),
    "note": ("○", "-", "yellow"),
}
_MARK_OF: Mapping[Outcome, Mark] = {
    "right": "ok", "wrong": "wrong", "disagree": "note", "unknown": "note",
    "unsupported": "wrong", "unreadable": "wrong",
}  # fmt: skip
_QUIET = 10.0  # seconds before progress is shown
_POLL = 0.05  # seconds between two looks for lines that are known
_LONGEST = 240  # characters of the reason in a line of several
_WIDTH = max(len("types and shapes"), len("first node"))


class FindingPrinter:
    """Prints findings as they come, and counts them."""

    def __init__(self, stream: IO[str], *, watched: str = "") -> None:
        """`mentioned` is whether `watched`, such as a folder, is in what was printed."""
        self._console = Console(file=stream, highlight=False)
        self._title, self._watched, self.mentioned = "", watched, False
        self._outcomes: Counter[Outcome] = Counter()
        self.counts: dict[Mark, int] = {"ok": 0, "wrong": 0, "note": 0}

    def print_titled(self, title: str, findings: Iterable[Finding]) -> None:
        """Print findings, under their title if it is another one than before."""
        if title != self._title:
            self._title = title
            self._console.print(Text(printable(title), style="bold"), soft_wrap=True)
        self.print(findings)

    def print(self, findings: Iterable[Finding]) -> None:
        """Print findings, without wrapping, so that a command in one can be copied."""
        for found in findings:
            self.counts[found.mark] += 1
            mark, plain, colour = _MARKS[found.mark]
            line = Text("  ")
            line.append(plain if self._console.options.ascii_only else mark, style=colour)
            line.append(f" {found.question:<{_WIDTH}}  {printable(str(found))}")
            self._line(line)

    def print_outcome(self, model: str, outcome: Outcome, text: str) -> None:
        """Print the line of one of several models."""
        self._outcomes[outcome] += 1
        mark, plain, colour = _MARKS[_MARK_OF[outcome]]
        line = Text(plain if self._console.options.ascii_only else mark, style=colour)
        reason = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
        line.append(f" {outcome:<{max(map(len, OUTCOMES))}}  {printable(model)}: {printable(reason)}", style="default")
        self._line(line)

    def print_outcomes(self, command: str) -> None:
        """Print how many models have each outcome, and the command that explains one."""
        counts = ", ".join(f"{self._outcomes[o]} {o}" for o in OUTCOMES if self._outcomes[o])
        self._line(Text(f"{many(self._outcomes.total(), 'model')}: {counts}"))
        if any(self._outcomes[o] for o in OUTCOMES if _MARK_OF[o] == "wrong"):
            self._line(Text(f"The whole check of one: {command} MODEL"))

    def print_interrupted(self, what: str) -> None:
        """Print what was not judged when the command was interrupted."""
        self._line(Text(f"interrupted, so not judged: {printable(what)}"))

    def _line(self, line: Text) -> None:
        self.mentioned |= bool(self._watched) and self._watched in line.plain
        self._console.print(line, soft_wrap=True)

    def print_summary(self) -> None:
        """Print how many findings there are of each mark."""
        notes = f", {many(self.counts['note'], 'note')}" if self.counts["note"] else ""
        failed = f"{self.counts['wrong']} failed, " if self.counts["wrong"] else "OK: "
        self._console.print(Text(f"{failed}{self.counts['ok']} passed{notes}"), soft_wrap=True)


def check_outside(requests: Sequence[CheckRequest]) -> int:
    """Check models in an empty project in a new folder, which is removed if nothing is in it that a message names."""
    root = Path(tempfile.mkdtemp(prefix="opmatrix-check-"))
    printer = FindingPrinter(sys.stdout, watched=str(root))
    (root / "dodo.py").touch()
    (root / "pyproject.toml").write_text(f"[tool.opmatrix]\nformat = {FORMAT}\n", encoding="utf-8")
    try:
        return check(requests, Paths(root), printer, project=False)
    finally:
        if not printer.mentioned:
            shutil.rmtree(root, ignore_errors=True)


def check(requests: Sequence[CheckRequest], paths: Paths, printer: FindingPrinter, *, project: bool) -> int:
    """Check the models and return the exit code. One prints its findings, several a line each, as they are known."""
    command = f"{doit_command(paths.root)} check" if project else "opmatrix check"
    with hold(paths.lock) as lock, ModelChecks(paths, lock=lock, command=command, project=project) as checks:
        if requests[1:]:
            return _check_several(requests, paths, checks, printer, command)
        return _check_one(requests[0], checks, printer)


def _check_one(request: CheckRequest, checks: ModelChecks, printer: FindingPrinter) -> int:
    checks.forget(request)
    with shown_by_thread(lambda: checks.doing, quiet=_QUIET) as pausing:

        def show(title: str, findings: Sequence[Finding]) -> None:
            with pausing():
                printer.print_titled(title, findings)

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
    several = SeveralChecks(paths, checks, requests, memory=step_limits(paths).megabytes)
    progress = Progress(quiet=_QUIET)
    code = 0

    def show_known(**patience: float) -> None:
        nonlocal code
        for request, answer in several.new_answers(**patience):
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
    if answer.error:
        printer.print_outcome(request.asked, "unreadable", answer.error)
        return UsageError.exit_code
    outcome, text = judge(answer.findings, answer.facts)
    printer.print_outcome(request.asked, outcome, text)
    return int(any(found.mark == "wrong" for found in answer.findings))
