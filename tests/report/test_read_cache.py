"""A report reads again what changed, and nothing else. Without the cache, or with a damaged one, it reads all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.project.paths import Paths
from opmatrix.records import verdict as verdicts
from opmatrix.records.verdict import CheckRecord, FailedStep, Found, Verdict
from opmatrix.report import read_cache
from opmatrix.report.read_cache import ReadCache
from tests.report.many import GRAPH, cells, verdict

CELLS = [*cells()][:3]
WRONG = replace(verdict("op", CELLS[2], "mismatched"), detail='why: "cases": [\n')
CHECK = CheckRecord(op="op", check="kernel", torch="2.13", outcome="failed", results=({"case": "a"},), weak=("w",),
                    blocked_by=FailedStep(group="compile", name="op"))  # fmt: skip
FOUND: list[Found] = [verdict("op", CELLS[0]), verdict("op", CELLS[1]), WRONG, CHECK]


def path_of(paths: Paths, found: Found) -> Path:
    return paths.verdict(*found.key) if isinstance(found, Verdict) else paths.check_record(*found.key)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project with verdicts, of which two are equal but for the cell, a check record, and a drawing."""
    made = Paths(tmp_path)
    for found in FOUND:
        verdicts.write(path_of(made, found), found)
    path = made.graph_drawings("op", "custom", CELLS[0])
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(GRAPH))
    return made


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Return the names of the files that are read. Every file is old: tests write and read within a tick."""
    names: list[str] = []
    text_of = Path.read_text

    def read_text(path: Path, encoding: str | None = None) -> str:
        names.append(path.name)
        return text_of(path, encoding)

    monkeypatch.setattr(read_cache, "settled", lambda *_: True)
    monkeypatch.setattr(Path, "read_text", read_text)
    yield names


def report(paths: Paths) -> list[Found]:
    """Read all as a report does, and keep it."""
    cache = ReadCache(paths)
    found = [cache.record(path_of(paths, one)) for one in FOUND]
    assert cache.drawings(paths.graph_drawings("op", "custom", CELLS[0])) == GRAPH
    cache.save()
    return found


def test_a_second_report_reads_only_the_cache(paths: Paths, read: list[str]) -> None:
    first = report(paths)
    assert first == FOUND and len(read) == 6
    read.clear()
    assert report(paths) == FOUND
    assert read == ["cache.json"]


def test_a_file_that_changed_is_read_again(paths: Paths, read: list[str]) -> None:
    report(paths)
    read.clear()
    path, now = path_of(paths, WRONG), replace(WRONG, detail=WRONG.detail.replace("why", "who"))
    before = path.stat()
    verdicts.write(path, now)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size, "neither size nor time stamp tells"
    assert report(paths) == [*FOUND[:2], now, CHECK]
    assert read == ["cache.json", path.name]
    assert report(paths)[2] == now


def test_cells_in_which_the_same_was_measured_share_their_cases(paths: Paths, read: list[str]) -> None:
    for _ in range(2):
        first, second, other, _check = report(paths)
        assert isinstance(first, Verdict) and isinstance(second, Verdict) and isinstance(other, Verdict)
        assert first.cases is second.cases is not other.cases
    assert len(json.loads(paths.report_cache.read_text())["texts"]) == 4, "two lists of cases, a drawing, and none"


def test_a_file_that_may_change_within_a_tick_is_read_again(
    paths: Paths, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_cache, "settled", lambda *_: False)
    report(paths)
    read.clear()
    report(paths)
    assert len(read) == 6


def test_what_is_gone_leaves_the_cache(paths: Paths, read: list[str]) -> None:
    report(paths)
    cache = ReadCache(paths)
    assert cache.record(path_of(paths, CHECK)) == CHECK
    cache.save()
    kept = json.loads(paths.report_cache.read_text())
    assert [*kept["files"]] == [str(path_of(paths, CHECK).relative_to(paths.root))] and kept["texts"] == [""]
    path_of(paths, CHECK).unlink()
    with pytest.raises(FileNotFoundError):
        ReadCache(paths).record(path_of(paths, CHECK))


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"form": 1}', '{"form": null, "files": 3}'])
def test_a_damaged_cache_is_not_used(paths: Paths, damaged: str) -> None:
    report(paths)
    paths.report_cache.write_text(damaged)
    assert report(paths) == FOUND


def test_a_moved_project_keeps_its_cache(paths: Paths, read: list[str]) -> None:
    report(paths)
    moved = Paths(paths.root.rename(paths.root.with_name("moved")))
    read.clear()
    assert report(moved) == FOUND and read == ["cache.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"op": "op", "cases": [\n{"x": 1}\n]}'])
def test_a_file_that_is_no_record_is_refused_each_time(paths: Paths, read: list[str], text: str) -> None:
    path_of(paths, WRONG).write_text(text)
    for _ in range(2):
        cache = ReadCache(paths)
        with pytest.raises(ValueError, match=r"not a verdict|Expecting"):
            cache.record(path_of(paths, WRONG))
        cache.save()
