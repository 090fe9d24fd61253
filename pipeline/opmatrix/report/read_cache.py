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

from opmatrix.basics.files import mark, settled, write_text
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, Cases, CheckRecord, Found, Verdict

_FORM = [[field.name for field in fields(one)] for one in (CaseResult, Verdict, CheckRecord)]
_DIGESTS = ("library", "exported")  # of a verdict, which no report shows


class _Texts:
    """Texts by number, each once, with what each holds."""

    def __init__(self, texts: list[str]) -> None:
        self.texts, self._indices = texts, {text: n for n, text in enumerate(texts)}
        self._held: dict[int, Any] = {}

    def number(self, text: str) -> int:
        found = self._indices.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found

    def held(self, number: int, read: Callable[[str], Any]) -> Any:
        if number not in self._held:
            self._held[number] = read(self.texts[number])
        return self._held[number]


class ReadCache:
    """Reads verdicts, check records and graph drawings. `save` keeps what was read."""

    def __init__(self, paths: Paths) -> None:
        self.paths, self._root = paths, f"{paths.root}/"
        self._before: dict[str, list[Any]] = {}
        texts: list[str] = []
        with suppress(OSError, ValueError, LookupError, TypeError):
            data = json.loads(paths.report_cache.read_text(encoding="utf-8"))
            if data["form"] == _FORM:
                self._before, texts = data["files"], data["texts"]
        self._texts = _Texts(texts)
        self._now: dict[str, list[Any]] = {}
        self.asked: set[str] = set()
        """The paths that were to be read."""
        self._changed = False

    def found(self, path: Path) -> Found:
        """Return what `verdict.write` wrote to a file. Raises FileNotFoundError, or ValueError for anything else."""
        data, number = self._read(str(path), _split)
        cases: Cases = self._texts.held(number, verdict.read_cases)
        try:
            return verdict.made_of(data, cases)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    def drawings(self, path: Path) -> Any:
        """Return the JSON in a file. Raises FileNotFoundError or ValueError."""
        _none, number = self._read(str(path), lambda text: (None, text))
        return self._texts.held(number, json.loads)

    def save(self) -> None:
        """Write what was read, if it differs from what the cache had."""
        if self._changed or self._now.keys() != self._before.keys():
            used = sorted({entry[2] for entry in self._now.values()})
            numbers = {old: new for new, old in enumerate(used)}
            files = {path: [*entry[:2], numbers[entry[2]]] for path, entry in self._now.items()}
            content = {"form": _FORM, "texts": [self._texts.texts[n] for n in used], "files": files}
            write_text(self.paths.report_cache, json.dumps(content, separators=(",", ":")) + "\n")

    def _read(self, path: str, split: Callable[[str], tuple[Any, str]]) -> tuple[Any, int]:
        self.asked.add(path)
        name = path.removeprefix(self._root)
        if found := self._now.get(name):  # as a drawing, which several cells have
            return found[1], found[2]
        now = mark(path)
        known = self._before.get(name)
        if known and now and tuple(known[0]) == now:
            self._now[name] = known
            return known[1], known[2]
        read_at = time.time_ns()
        data, text = split(Path(path).read_text(encoding="utf-8"))
        number = self._texts.number(text)
        self._changed = True
        if now and settled(now, read_at):
            self._now[name] = [now, data, number]
        return data, number


def _split(text: str) -> tuple[Any, str]:
    """Return the fields of a record but the digests, and its cases as text."""
    head, cases = verdict.split(text)
    data = json.loads(head)
    return ({k: v for k, v in data.items() if k not in _DIGESTS} if isinstance(data, dict) else data), cases
