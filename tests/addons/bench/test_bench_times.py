"""The page has the times of `doit bench` while their files are the same, else the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opmatrix.addons.bench import records, times
from opmatrix.project.paths import Paths
from opmatrix.records.code_hash import modules, of_features
from opmatrix.report import page
from opmatrix.report.report_json import document
from tests.addons.bench import timed
from tests.report.many import BACKGROUND, ENVIRONMENTS, cells, verdict

OP = "operator_00"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project with a bench.json of the kernel that it has."""
    kernel = tmp_path / timed.KERNEL
    kernel.parent.mkdir(parents=True)
    kernel.write_text("int x = 1;\n")
    paths = Paths(tmp_path)
    timed.write(paths, timed.document(), files=(timed.KERNEL,))
    return paths


def problem(paths: Paths) -> str:
    (found,) = times.read_all(paths, [OP])
    assert ("rows" in found) == (not found["problem"])
    return str(found["problem"])


def test_times_that_are_up_to_date(paths: Paths) -> None:
    (found,) = times.read_all(paths, ["another", OP])
    assert (found["op"], found["problem"], found["date"]) == (OP, "", "2026-11-24T15:00:00+00:00")
    first, *_, last = found["rows"]
    assert (first["name"], first["dtype"], first["threads"]) == ("n1000_float32", "float32", 1)
    assert (first["bytes"], first["flops"], first["rounds"]) == (1000, 8000, 40)
    one = first["contestants"][0]
    assert one["seconds"] == [1e-6, 9e-7, 1.2e-6] and one["ours"] and one["tolerance_used"] == 0.25
    assert first["contestants"][-1]["seconds"] is None
    assert first["contestants"][-1]["skipped"] == "torchvision is not installed"
    assert first["ratios"][0] == {"ours": "torch library", "peer": "torch", "ratio": [2.0, 1.8, 2.4]}
    assert last == {"name": "huge", "dtype": "float32", "threads": 1, "failed": "it died of SIGKILL"}


@pytest.mark.parametrize("change", [lambda file: file.write_text("int x = 2;\n"), Path.unlink], ids=["edited", "gone"])
def test_times_of_other_files_are_not_shown(paths: Paths, change: Callable[[Path], object]) -> None:
    change(paths.root / timed.KERNEL)
    assert problem(paths) == (
        f"the times of 2026-11-24 are of other files: {timed.KERNEL}. Run: doit bench operator_00"
    )


def bad(**changed: Any) -> dict[str, Any]:
    return timed.document() | changed


def with_row(**changed: Any) -> dict[str, Any]:
    return bad(rows=[timed.row(1000, "float32", 1) | changed])


DAMAGED: dict[str, tuple[str, str]] = {
    "cut": (json.dumps(timed.document())[:500], "Unterminated string|Expecting"),
    "no object": ("[]", "list indices"),
    "no rows": (json.dumps({k: v for k, v in timed.document().items() if k != "rows"}), "no 'rows'"),
    "of another": (json.dumps(bad(op="other")), "it has the times of 'other'"),
    "rows are a number": (json.dumps(bad(rows=3)), "'int' object is not iterable"),
    "NaN": (json.dumps(with_row(bytes=float("nan"))), "found nan, allowed: a number from 0 on"),
    "infinite": (json.dumps(with_row(rounds=float("inf"))), "found inf, allowed"),
    "negative": (json.dumps(with_row(flops=-1)), "found -1, allowed"),
    "not a number": (json.dumps(with_row(rounds="many")), "found 'many', allowed"),
    "no time": (json.dumps(with_row(ratios=[{"ours": "a", "peer": "b", "median": 0, "low": 0, "high": 0}])),
                "found a median of 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(paths: Paths, name: str) -> None:
    text, why = DAMAGED[name]
    paths.bench_record(OP).write_text(text)
    said = problem(paths)
    assert re.fullmatch(
        rf"build/bench/{OP}/bench\.json is damaged: .*({why}).*\. Run: doit bench {OP}", said
    ), said  # fmt: skip
    render(times.read_all(paths, [OP]))


def test_bytes_that_are_no_text(paths: Paths) -> None:
    paths.bench_record(OP).write_bytes(b"\xff\xfe")
    assert "is damaged: 'utf-8' codec" in problem(paths)


def test_a_file_that_cannot_be_opened(paths: Paths) -> None:
    paths.bench_record(OP).unlink()
    paths.bench_record(OP).mkdir()
    assert problem(paths) == f"build/bench/{OP}/bench.json: Is a directory. Run: doit bench {OP}"


def test_another_format_is_not_read(paths: Paths) -> None:
    timed.write(paths, bad(schema=99))
    assert problem(paths) == (
        f"the times are in another format: schema 99, this opmatrix reads 2. Run: doit bench {OP}"
    )


def test_nothing_without_a_file(paths: Paths, tmp_path: Path) -> None:
    assert times.read_all(paths, ["another"]) == []
    assert times.read_all(Paths(tmp_path / "empty"), [OP]) == []


def test_several_type_variables_are_named(paths: Paths) -> None:
    timed.write(paths, with_row(types={"T": "float32", "U": "int64"}))
    (found,) = times.read_all(paths, [OP])
    assert found["rows"][0]["dtype"] == "T=float32, U=int64"


def render(bench: list[dict[str, Any]]) -> str:
    found = [verdict(OP, next(cells()))]
    return page.render(document(found, ENVIRONMENTS), found, [BACKGROUND], bench=bench)


def test_a_page_without_times_has_no_byte_of_them(paths: Paths) -> None:
    without, with_times = render([]), render(times.read_all(paths, [OP]))
    assert not re.search("bench", without, re.IGNORECASE)
    assert "buildBench();" in with_times and "#bench" in with_times
    data = re.search(r'id="data">(.*?)</script>', with_times, re.DOTALL)
    assert data and json.loads(data[1])["bench"] == times.read_all(paths, [OP])


def test_the_schema_is_that_of_doit_bench() -> None:
    assert times.SCHEMA == records.SCHEMA


def test_the_report_depends_on_no_other_code_of_bench() -> None:
    """The report would run again after each edit of it."""
    found = [path.as_posix() for path in (*modules("report"), *of_features("mutation", "bench"))]
    own = {path.partition("/addons/bench/")[2] for path in found if "/addons/bench/" in path}
    assert own == {"times.py"} and not [path for path in found if "/opmatrix/bench/" in path]
