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
def layout(tmp_path: Path) -> Paths:
    layout = Paths(tmp_path)
    verdict.write(layout.verdict("op", "custom", CELL), replace(made("op", CELL, "verified"), lowering="custom"))
    layout.verdict_list.parent.mkdir(parents=True, exist_ok=True)
    layout.verdict_list.write_text(f"{layout.verdict('op', 'custom', CELL)}\n")
    return layout


def test_each_output_says_what_came_from_where(layout: Paths) -> None:
    write_origins(layout, ORIGINS)
    write_report.run(layout, [("op", "custom", CELL)])
    assert json.loads(layout.report_data.read_text())["shared"] == [
        {"from": URL, "signer": "ci@example.org", "steps": ["compile:op", f"verify:op-custom@{CELL}"]},
        {"from": "file:///srv/cache", "signer": None, "steps": ["data:op"]},
    ]
    summary = layout.report_files[2].read_text()
    assert f"2 results from the shared cache `{URL}`, signed by `ci@example.org`." in summary
    assert "1 result from the shared cache `file:///srv/cache`." in summary
    assert json.dumps(URL) in layout.report_files[3].read_text()


def test_without_a_cache_nothing_is_said(layout: Paths) -> None:
    write_origins(layout, {})
    assert not layout.origins.exists()
    write_report.run(layout, [("op", "custom", CELL)])
    assert json.loads(layout.report_data.read_text())["shared"] == []
    assert "shared cache" not in layout.report_files[2].read_text()


def test_what_is_computed_here_is_no_longer_named(layout: Paths) -> None:
    write_origins(layout, ORIGINS)
    write_origins(layout, {})
    assert read_origins(layout) == {}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"data:op": 1}', '{"data:op": ["a"]}', "null"])
def test_a_damaged_file_is_none(layout: Paths, content: str) -> None:
    layout.origins.write_text(content)
    assert read_origins(layout) == {}
