"""The progress line of a run in a terminal: steps done of all, elapsed time, time left, running steps. Below it a line
for each step that runs long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import IO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text


class _Lines(Progress):
    """The progress line, and below it what `long_steps` returns whenever the line is drawn."""

    long_steps: Callable[[], Sequence[str]] = list

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from super().get_renderables()
        for line in self.long_steps():
            yield Text(f"  {line}", no_wrap=True, overflow="ellipsis")


class Display:
    """Lines of rich that are shown until `stop`. rich honours NO_COLOR."""

    def __init__(self, stream: IO[str], total: int, *, long_steps: Callable[[], Sequence[str]]) -> None:
        columns = MofNCompleteColumn(), BarColumn(bar_width=20), TimeElapsedColumn(), TextColumn("{task.description}")
        self._progress = _Lines(*columns, console=Console(file=stream), transient=True, refresh_per_second=4)
        self._progress.long_steps = long_steps
        self._line = self._progress.add_task("", total=total)
        self._progress.start()

    def update(self, *, done: int, running: Sequence[str], left: float, failed: int) -> None:
        """Show new values; `left` is at most how many seconds remain, 0 if unknown."""
        self._progress.update(self._line, completed=done, description=describe(running, left=left, failed=failed))

    def write(self, line: str) -> None:
        """Write a permanent line above the progress line."""
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def stop(self) -> None:
        self._progress.stop()


def describe(running: Sequence[str], *, left: float, failed: int = 0) -> str:
    """Return what follows the elapsed time: ``at most 1:20 left  2 failed  compile:group_norm and 1 more``."""
    time = f"at most {int(left) // 60}:{int(left) % 60:02} left  " if left >= 1 else ""
    wrong = f"{failed} failed  " if failed else ""
    more = f" and {len(running) - 1} more" if len(running) > 1 else ""
    return time + wrong + (f"{running[0]}{more}" if running else "")
