"""Every output of the report says which results came from a shared cache, and by whose signature."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.report import write_report
from opmatrix.report.history import read_origins, write_origins
from tests.report.many import verdict as made

CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")
URL = "https://cache.example.org/ops"
ORIGINS = {
    "compile:op": (URL, "ci@example.org"),
    f"verify:op-custom@{CELL}": (URL, "ci@example.org"),
    "data:op": ("file:///srv/cache", None),
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    verdict.write(paths.verdict("op", "custom", CELL), replace(made("op", CELL, "verified"), lowering="custom"))
    paths.verdict_list.parent.mkdir(parents=True, exist_ok=True)
    paths.verdict_list.write_text(f"{paths.verdict('op', 'custom', CELL)}\n")
    return paths


def test_each_output_says_what_came_from_where(paths: Paths) -> None:
    write_origins(paths, ORIGINS)
    write_report.run(paths, [("op", "custom", CELL)])
    assert json.loads(paths.report_data.read_text())["shared"] == [
        {"from": URL, "signer": "ci@example.org", "steps": ["compile:op", f"verify:op-custom@{CELL}"]},
        {"from": "file:///srv/cache", "signer": None, "steps": ["data:op"]},
    ]
    summary = paths.report_files[2].read_text()
    assert f"2 results from the shared cache `{URL}`, signed by `ci@example.org`." in summary
    assert "1 result from the shared cache `file:///srv/cache`." in summary
    assert json.dumps(URL) in paths.report_files[3].read_text()


def test_without_a_cache_nothing_is_said(paths: Paths) -> None:
    write_origins(paths, {})
    assert not paths.origins.exists()
    write_report.run(paths, [("op", "custom", CELL)])
    assert json.loads(paths.report_data.read_text())["shared"] == []
    assert "shared cache" not in paths.report_files[2].read_text()


def test_what_is_computed_here_is_no_longer_named(paths: Paths) -> None:
    write_origins(paths, ORIGINS)
    write_origins(paths, {})
    assert read_origins(paths) == {}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"data:op": 1}', '{"data:op": ["a"]}', "null"])
def test_a_damaged_file_is_none(paths: Paths, content: str) -> None:
    paths.origins.write_text(content)
    assert read_origins(paths) == {}
