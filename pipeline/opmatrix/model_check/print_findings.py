"""Print the findings of `doit check` in a terminal: one line each, with a mark, so that no colour is needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import IO

from rich.console import Console
from rich.text import Text

from opmatrix.errors import many, printable
from opmatrix.model_check.finding import Finding, Mark

# The mark, the mark for a terminal without Unicode, and the colour; rich honours NO_COLOR.
_MARKS: Mapping[Mark, tuple[str, str, str]] = {
    "ok": ("✓", "ok", "green"),
    "wrong": ("✗", "X", "red"),
    "note": ("○", "-", "yellow"),
}
_WIDTH = max(len("types and shapes"), len("first node"))


class FindingPrinter:
    """Prints findings as they come, and counts them."""

    def __init__(self, stream: IO[str]) -> None:
        self._console = Console(file=stream, highlight=False)
        self.counts: dict[Mark, int] = {"ok": 0, "wrong": 0, "note": 0}

    def title(self, text: str) -> None:
        self._console.print(Text(printable(text), style="bold"), soft_wrap=True)

    def print(self, findings: Iterable[Finding]) -> None:
        """Print findings, without wrapping, so that a command in one can be copied."""
        for found in findings:
            self.counts[found.mark] += 1
            mark, plain, colour = _MARKS[found.mark]
            line = Text("  ")
            line.append(plain if self._console.options.ascii_only else mark, style=colour)
            line.append(f" {found.question:<{_WIDTH}}  {printable(str(found))}")
            self._console.print(line, soft_wrap=True)

    def print_summary(self) -> None:
        """Print how many findings there are of each mark."""
        notes = f", {many(self.counts['note'], 'note')}" if self.counts["note"] else ""
        failed = f"{self.counts['wrong']} failed, " if self.counts["wrong"] else "OK: "
        self._console.print(Text(f"{failed}{self.counts['ok']} passed{notes}"), soft_wrap=True)
