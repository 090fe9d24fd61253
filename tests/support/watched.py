"""A `doit watch` that runs while a test saves files."""

from __future__ import annotations

import re
import signal
import subprocess
import threading

from tests.incremental.conftest import wait_for

_SAVED = re.compile(r"^\d\d:\d\d:\d\d (.*) (?:saved|removed)$", re.MULTILINE)
_VERDICT = re.compile(r"^OK in|^\d+ steps in", re.MULTILINE)


class Watched:
    """The process, and what it printed so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.text = process, ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                self.text += line

    def verdicts(self) -> int:
        return len(_VERDICT.findall(self.text))

    def await_verdicts(self, count: int) -> None:
        wait_for(lambda: self.verdicts() >= count or not self._reader.is_alive())
        assert self.verdicts() >= count, self.text

    def saved(self) -> list[str]:
        """Return what the first line of each turn names."""
        return _SAVED.findall(self.text)

    def idle(self) -> bool:
        """Return whether the turn after the last save has its verdict."""
        return bool(_VERDICT.search(_SAVED.split(self.text)[-1]))

    def last_turn(self) -> list[str]:
        """Return the lines of the last turn."""
        return self.text.rpartition("\n\n")[2].splitlines()

    def end(self, number: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait()
        self._reader.join()
        return code
