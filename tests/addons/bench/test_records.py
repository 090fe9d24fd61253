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
from opmatrix.project.paths import Paths
from tests.addons.bench import timed
from tests.support.json_schema import mistakes
from tests.support.projects import write_files


def schema(name: str) -> dict[str, Any]:
    return dict(json.loads(resources.files("opmatrix.addons.bench").joinpath(f"{name}.schema.json").read_text()))


def interval(median: float) -> Record:
    return {"median": median, "low": median * 0.99, "high": median * 1.01}


def contestant(name: str, /, **changed: Any) -> Record:
    made = timed.contestant(name, 1.5e-5 / timed.CONTESTANTS[name], 1)
    return {**made, "seconds": interval(1.5e-5), "flops_per_second": 0.25, "peak_memory": 67108864, **changed}


def row(**changed: Any) -> Record:
    """Return a row with everything that one may have."""
    no_truth = {"output": "", "absolute": None, "tolerance_used": None, "problem": "no truth"}
    return {
        **timed.row(67108864, "float32", 2, None), "name": "8x256x64x64_float32", "ended": "narrow",
        "shapes": {"x": [8, 256, 64, 64], "xs": [[1], [2]]},
        "contestants": [
            contestant("torch library"), contestant("ORT library"), contestant("decomposed"),
            contestant("torch", name="a peer with the longest", error=no_truth),
            timed.skipped("torchvision", "torchvision is not installed"),
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


HEAD = timed.document("group_norm") | {"cpu_level": "x86-64-v3", "files": {"ops/group_norm/spec.py": "0" * 64}}


def bench() -> Record:
    rows = [row(), row(ended="budget", flops=1e9), failed()]
    return json.loads(json.dumps(HEAD | {"rows": rows}))


def against() -> Record:
    rows = [compared(), compared(slower=True), failed(), {**failed(), "failed": "", "side": "torch", "skipped": "why"}]
    head = {key: value for key, value in HEAD.items() if key not in ("source", "budget", "rows")}
    return json.loads(json.dumps({**head, "rev": "HEAD~1", "commit": "a" * 40, "against": rows}))


@pytest.mark.parametrize(("name", "document"), [("bench", bench()), ("against", against())])
def test_documents_match_the_schemas_which_describe_every_key(name: str, document: Record) -> None:
    assert [*mistakes(document, schema(name), name)] == []
    waiting = [schema(name), *schema(name)["$defs"].values()]
    while waiting:
        for key, value in waiting.pop().get("properties", {}).items():
            assert value.get("description"), key
            waiting.append(value)


@pytest.mark.parametrize(
    ("name", "plant", "said"),
    [
        ("bench", lambda d: d.update(schema=0), "bench.schema: 0 is not 2"),
        ("bench", lambda d: d.pop("files"), "bench: no 'files'"),
        ("bench", lambda d: d.update(cpu_level=3), "bench.cpu_level: 3"),
        ("bench", lambda d: d.update(more=1), "bench: unknown key 'more'"),
        ("bench", lambda d: d["rows"][0].update(ended="late"), "bench.rows[0].ended: 'late' is not"),
        ("bench", lambda d: d["rows"][0].update(threads=0), "bench.rows[0].threads: 0 is below 1"),
        ("bench", lambda d: d["rows"][0]["contestants"][0].update(ours=1), "bench.rows[0].contestants[0].ours: 1"),
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
    assert max(map(len, [*lines, *records.LEGEND])) <= 80 and len(lines) == 9
    assert lines[:2] == ["8x256x64x64_float32, 2 threads: 67.1 MB", "  narrow after 40 rounds"]
    assert lines[3].split() == ["torch", "library", "15", "us", "67.1", "MB", "0.25"]
    assert lines[5].split() == ["decomposed", "15", "us", "12.500", "+-", "1.0%", "67.1", "MB", "0.25"]
    assert lines[6].startswith("  a peer with the longe~ ") and lines[6].endswith(" -")
    assert lines[7:] == [
        "  torchvision            skipped: torchvision is not installed",
        "  no error measured: no truth",
    ]
    assert [*records.shown(row(ended="budget", rounds=3))][1].endswith("budget spent: 3 rounds (too few)")
    assert [*records.shown(row(ended="budget", rounds=6))][1].endswith("budget spent: 6 rounds")
    assert [*records.shown(failed())] == ["r, 1 thread: failed: its process died of SIGSEGV"]


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
    [(0, "0 "), (1.5e-8, "15 n"), (1.5e-5, "15 u"), (0.001, "1 m"), (0.9999e-3, "1 m"), (999.7, "1 k"),
     (67108864, "67.1 M")],
)  # fmt: skip
def test_numbers_have_three_digits(value: float, shown: str) -> None:
    assert records.number(value) == shown


def test_a_record_is_up_to_date_while_files_are_equal(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    write_files(tmp_path, {"ops/one/spec.py": "SPEC = 1\n"})
    before = records.files(paths, "one")
    assert [*before] == ["ops/one/spec.py"]
    write_files(tmp_path, {"ops/one/bench.py": "BENCH = 1\n", "native/one/kernel.h": "// a kernel\n"})
    assert [*records.files(paths, "one")] == ["ops/one/bench.py", "ops/one/spec.py", "native/one/kernel.h"]
    assert before.items() <= records.files(paths, "one").items()
