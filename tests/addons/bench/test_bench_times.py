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
from tests.support.projects import write_files

OP = "operator_00"


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """Return a project with a bench.json of the kernel that it has."""
    write_files(tmp_path, {timed.KERNEL: "int x = 1;\n"})
    timed.write(Paths(tmp_path), timed.document(), files=(timed.KERNEL,))
    return Paths(tmp_path)


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


def bad(**changed: Any) -> str:
    """Return the text of a file with other fields, or fields of a row."""
    document = timed.document()
    if not changed.keys() <= document.keys():
        changed = {"rows": [timed.row(1000, "float32", 1) | changed]}
    return json.dumps(document | changed)


NO_TIME = {"ours": "a", "peer": "b", "median": 0, "low": 0, "high": 0}
DAMAGED: dict[str, tuple[str | bytes, str]] = {
    "cut": (bad()[:500], "Unterminated string|Expecting"),
    "no object": ("[]", "list indices"),
    "no rows": (json.dumps({k: v for k, v in timed.document().items() if k != "rows"}), "no 'rows'"),
    "of another": (bad(op="other"), "it has the times of 'other'"),
    "rows are a number": (bad(rows=3), "'int' object is not iterable"),
    "NaN": (bad(bytes=float("nan")), "found nan, allowed: a number from 0 on"),
    "infinite": (bad(rounds=float("inf")), "found inf, allowed"),
    "negative": (bad(flops=-1), "found -1, allowed"),
    "not a number": (bad(rounds="many"), "found 'many', allowed"),
    "no time": (bad(ratios=[NO_TIME]), "found a median of 0"),
    "no text": (b"\xff\xfe", "'utf-8' codec"),
}


@pytest.mark.parametrize(("text", "why"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_named(paths: Paths, text: str | bytes, why: str) -> None:
    paths.bench_record(OP).write_bytes(text if isinstance(text, bytes) else text.encode())
    said = problem(paths)
    assert re.fullmatch(rf"build/bench/{OP}/bench\.json is damaged: .*({why}).*\. Run: doit bench {OP}", said), said
    render(times.read_all(paths, [OP]))


def test_a_file_that_cannot_be_opened_or_has_another_format(paths: Paths) -> None:
    timed.write(paths, timed.document() | {"schema": 99})
    again = f"Run: doit bench {OP}"
    assert problem(paths) == f"the times are in another format: schema 99, this opmatrix reads 2. {again}"
    paths.bench_record(OP).unlink()
    paths.bench_record(OP).mkdir()
    assert problem(paths) == f"build/bench/{OP}/bench.json: Is a directory. {again}"
    assert times.read_all(paths, ["another"]) == times.read_all(Paths(paths.root / "empty"), [OP]) == []


def test_several_type_variables_are_named(paths: Paths) -> None:
    paths.bench_record(OP).write_text(bad(types={"T": "float32", "U": "int64"}))
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


def test_the_report_depends_on_the_schema_and_no_other_code_of_bench() -> None:
    """The report would run again after each edit of it."""
    assert times.SCHEMA == records.SCHEMA
    found = [path.as_posix() for path in (*modules("report"), *of_features("mutation", "bench"))]
    own = {path.partition("/addons/bench/")[2] for path in found if "/addons/bench/" in path}
    assert own == {"times.py"} and not [path for path in found if "/opmatrix/bench/" in path]
