"""What the files that a report reads hold, kept for the next report: of 10,000 verdicts mostly a few have changed.

A file counts as unchanged while its time stamps, size and inode are the same. Cells in which the same was measured
share their cases in the cache and in memory, as they share their graphs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from opmatrix.basics.files import Mark, mark, settled, write_text
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, Cases, CheckRecord, Found, Verdict

_FORM = [[field.name for field in fields(one)] for one in (CaseResult, Verdict, CheckRecord)]
_DIGESTS = ("library", "exported")  # of a verdict, which no report shows
_Entry = tuple[Mark, Any, str]


class ReadCache:
    """Reads verdicts, check records and graph drawings. `save` keeps what was read: of each file its mark, the fields
    of its record, and the text of its cases or its drawings, which many files share."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self._root = paths, f"{paths.root}/"
        self._before: dict[str, _Entry] = {}
        self._texts: dict[str, str] = {}  # each once in memory
        with suppress(OSError, ValueError, LookupError, TypeError):
            data = json.loads(paths.report_cache.read_text(encoding="utf-8"))
            if data["form"] == _FORM:
                texts = data["texts"]
                self._before = {path: (tuple(m), fields, texts[n]) for path, (m, fields, n) in data["files"].items()}
                self._texts = {text: text for text in texts}
        self._now: dict[str, _Entry] = {}
        self._content: dict[str, Any] = {}  # of each text
        self.asked: set[str] = set()
        """The paths that were to be read."""
        self._changed = False

    def record(self, path: Path) -> Found:
        """Return what `verdict.write` wrote to a file. Raises FileNotFoundError, or ValueError for anything else."""
        data, text = self._read(str(path), _split)
        cases: Cases = self._content_of(text, verdict.read_cases)
        try:
            return verdict.made_of(data, cases)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def drawings(self, path: Path) -> Any:
        """Return the JSON in a file. Raises FileNotFoundError or ValueError."""
        _, text = self._read(str(path), lambda text: (None, text))
        return self._content_of(text, json.loads)

    def save(self) -> None:
        """Write what was read, if it differs from what the cache had."""
        if self._changed or self._now.keys() != self._before.keys():
            numbers: dict[str, int] = {}
            files = {p: [m, data, numbers.setdefault(text, len(numbers))] for p, (m, data, text) in self._now.items()}
            content = {"form": _FORM, "texts": [*numbers], "files": files}
            write_text(self.paths.report_cache, json.dumps(content, separators=(",", ":")) + "\n")

    def _content_of(self, text: str, read: Callable[[str], Any]) -> Any:
        if text not in self._content:
            self._content[text] = read(text)
        return self._content[text]

    def _read(self, path: str, split: Callable[[str], tuple[Any, str]]) -> tuple[Any, str]:
        self.asked.add(path)
        name = path.removeprefix(self._root)
        if found := self._now.get(name):  # as a drawing, which several cells have
            return found[1:]
        now = mark(path)
        known = self._before.get(name)
        if known and known[0] == now:
            self._now[name] = known
            return known[1:]
        read_at = time.time_ns()
        data, text = split(Path(path).read_text(encoding="utf-8"))
        text = self._texts.setdefault(text, text)
        self._changed = True
        if now and settled(now, read_at):
            self._now[name] = now, data, text
        return data, text


def _split(text: str) -> tuple[Any, str]:
    """Return the fields of a record but the digests, and its cases as text."""
    head, cases = verdict.split(text)
    data = json.loads(head)
    return ({k: v for k, v in data.items() if k not in _DIGESTS} if isinstance(data, dict) else data), cases
