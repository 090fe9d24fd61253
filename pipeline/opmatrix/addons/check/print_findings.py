"""Print the findings of `doit check` in a terminal: one line each, with a mark, so that no colour is needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import IO

from rich.console import Console
from rich.text import Text

from opmatrix.addons.check.parts import OUTCOMES, Outcome
from opmatrix.basics.errors import many, printable
from opmatrix.basics.finding import Finding, Mark

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
