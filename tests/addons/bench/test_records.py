"""bench.json and against.json match their schemas, and the tables fit a terminal of 80 columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from opmatrix.addons.bench import records
from opmatrix.addons.bench.forked import Record
from tests.support.json_schema import mistakes

DIGEST = "0" * 64


def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        resources.files("opmatrix.addons.bench").joinpath(f"{name}.schema.json").read_text()
    )
    return found


def interval(median: float) -> Record:
    return {"median": median, "low": median * 0.99, "high": median * 1.01}


def contestant(name: str, *, ours: bool = False, side: str = "torch", skipped: str = "", problem: str = "") -> Record:
    number = None if skipped else 0.25
    error = {"output": "y", "absolute": 1e-7, "tolerance_used": 0.25, "problem": ""}
    if problem:
        error = {"output": "", "absolute": None, "tolerance_used": None, "problem": problem}
    return {
        "name": name, "side": side, "ours": ours, "skipped": skipped, "seconds": None if skipped else interval(1.5e-5),
        "bytes_per_second": number, "flops_per_second": number,
        "peak_memory": None if skipped else 67108864, "error": None if skipped else error,
    }  # fmt: skip


def row(**changed: Any) -> Record:
    """Return a row with everything that one may have."""
    return {
        "name": "8x256x64x64_float32", "types": {"T": "float32"}, "shapes": {"x": [8, 256, 64, 64], "xs": [[1], [2]]},
        "failed": "", "threads": 2, "clock": "wall", "truth": {"precision": "float64", "problem": ""},
        "bytes": 67108864.0, "flops": None, "rounds": 40, "ended": "narrow",
        "contestants": [
            contestant("torch library", ours=True),
            contestant("ORT library", ours=True, side="onnxruntime"),
            contestant("decomposed", side="onnxruntime"),
            contestant("a peer with the longest", problem="no truth"),
            contestant("torchvision", skipped="torchvision is not installed"),
        ],
        "ratios": [
            {"ours": "torch library", "peer": "a peer with the longest", **interval(0.912)},
            {"ours": "ORT library", "peer": "decomposed", **interval(12.5)},
        ],
        **changed,
    }  # fmt: skip


def failed() -> Record:
    return {"name": "r", "types": {}, "shapes": {}, "failed": "its process died of SIGSEGV", "threads": 1}


def compared(**changed: Any) -> Record:
    return {
        "name": "8x256x64x64_float32_and_a_long_name", "types": {}, "shapes": {}, "failed": "", "threads": 2,
        "side": "onnxruntime", "skipped": "", "seconds": 0.00123, "ratio": 1.1, "noise": 0.01, "p": 1e-6,
        "level": 0.001, "generations": 6, "slower": False, "undecided": False, **changed,
    }  # fmt: skip


HEAD = {
    "schema": records.SCHEMA, "op": "group_norm", "date": "2026-11-24T15:00:00+00:00",
    "machine": {"processor": "a processor", "processors": 2, "not_pinned": ""}, "cpu_level": "x86-64-v3",
    "versions": {"torch": "2.13.0"}, "files": {"ops/group_norm/spec.py": DIGEST},
}  # fmt: skip


def bench() -> Record:
    rows = [row(), row(ended="budget", flops=1e9), failed()]
    return json.loads(json.dumps({**HEAD, "source": "ops/group_norm/bench.py", "budget": 3.0, "rows": rows}))


def against() -> Record:
    rows = [compared(), compared(slower=True), failed(), {**failed(), "failed": "", "side": "torch", "skipped": "why"}]
    return json.loads(json.dumps({**HEAD, "rev": "HEAD~1", "commit": "a" * 40, "against": rows}))


def test_documents_match_the_schemas() -> None:
    assert [*mistakes(bench(), schema("bench"), "bench")] == []
    assert [*mistakes(against(), schema("against"), "against")] == []


def _delete(document: Record) -> None:
    del document["files"]


@pytest.mark.parametrize(
    ("name", "plant", "said"),
    [
        ("bench", lambda d: d.update(schema=0), "bench.schema: 0 is not 2"),
        ("bench", _delete, "bench: no 'files'"),
        ("bench", lambda d: d.update(cpu_level=3), "bench.cpu_level: 3"),
        ("bench", lambda d: d.update(more=1), "bench: unknown key 'more'"),
        ("bench", lambda d: d["rows"][0].update(ended="late"), "bench.rows[0].ended: 'late' is not"),
        ("bench", lambda d: d["rows"][0].update(threads=0), "bench.rows[0].threads: 0 is below 1"),
        (
            "bench",
            lambda d: d["rows"][0]["contestants"][0].update(ours=1),
            "bench.rows[0].contestants[0].ours: 1",
        ),
        ("bench", lambda d: d["rows"][0]["ratios"][0].pop("low"), "bench.rows[0].ratios[0]: no 'low'"),
        ("against", lambda d: d.update(commit="HEAD"), "against.commit: 'HEAD' does not match"),
        ("against", lambda d: d["against"][0].update(slower="no"), "against.against[0].slower: 'no' is no boolean"),
        ("against", lambda d: d["against"][2].pop("failed"), "against.against[2]: no 'failed'"),
    ],
)
def test_the_schemas_refuse_other_documents(name: str, plant: Callable[[Record], object], said: str) -> None:
    document = bench() if name == "bench" else against()
    plant(document)
    assert [m for m in mistakes(document, schema(name), name) if m.startswith(said)]


def test_the_table_of_a_row() -> None:
    lines = [*records.shown(row())]
    assert max(map(len, lines)) <= 80 and len(lines) == 9
    assert lines[0] == "8x256x64x64_float32, 2 threads: 67.1 MB"
    assert lines[1] == "  narrow after 40 rounds"
    assert lines[3].split() == ["torch", "library", "15", "us", "67.1", "MB", "0.25"]
    assert lines[5].split() == ["decomposed", "15", "us", "12.500", "+-", "1.0%", "67.1", "MB", "0.25"]
    assert lines[6].startswith("  a peer with the longe~ ") and lines[6].endswith(" -")
    assert lines[7:] == [
        "  torchvision            skipped: torchvision is not installed",
        "  no error measured: no truth",
    ]


def test_a_spent_budget_and_a_failed_row_are_printed() -> None:
    assert [*records.shown(row(ended="budget", rounds=3))][1].endswith("budget spent: 3 rounds (too few)")
    assert [*records.shown(row(ended="budget", rounds=6))][1].endswith("budget spent: 6 rounds")
    assert [*records.shown(failed())] == ["r, 1 thread: failed: its process died of SIGSEGV"]
    assert max(map(len, records.LEGEND)) <= 80


def test_the_table_of_a_comparison() -> None:
    head = records.against_head("group_norm", rev="HEAD~1", commit="a" * 40)
    lines = [*head.splitlines(), *map(records.against_line, against()["against"])]
    assert max(map(len, lines)) <= 80
    assert lines[0] == "group_norm against HEAD~1 (aaaaaaaaaaaa): time now / time then"
    assert lines[2] == "  8x256x64x64_float32_and_a_lon~   2 onnxruntime  1.23 ms  1.100   1.0%"
    assert lines[3].endswith(" SLOWER") and lines[4].endswith(" its process died of SIGSEGV")
    assert lines[5].split() == ["r", "1", "torch", "why"]
    assert records.slower(against()["against"]) == [
        "8x256x64x64_float32_and_a_long_name on 2 in onnxruntime: 1.10 times"
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 "),
        (1.5e-8, "15 n"),
        (1.5e-5, "15 u"),
        (0.001, "1 m"),
        (0.9999e-3, "1 m"),
        (999.7, "1 k"),
        (67108864, "67.1 M"),
    ],
)
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert records.number(value) == shown


def test_a_schema_describes_every_key() -> None:
    for name in ("bench", "against"):
        waiting = [schema(name), *schema(name)["$defs"].values()]
        while waiting:
            found = waiting.pop()
            for key, value in found.get("properties", {}).items():
                assert value.get("description"), f"{name}: {key}"
                waiting.append(value)


def test_a_record_is_up_to_date_while_files_are_equal(tmp_path: Path) -> None:
    from opmatrix.project.paths import Paths

    paths = Paths(tmp_path)
    paths.op("one").mkdir(parents=True)
    paths.spec("one").write_text("SPEC = 1\n")
    before = records.files(paths, "one")
    assert [*before] == ["ops/one/spec.py"]
    paths.bench("one").write_text("BENCH = 1\n")
    paths.kernel("one").parent.mkdir(parents=True)
    paths.kernel("one").write_text("// a kernel\n")
    assert [*records.files(paths, "one")] == ["ops/one/bench.py", "ops/one/spec.py", "native/one/kernel.h"]
    assert before.items() <= records.files(paths, "one").items()
