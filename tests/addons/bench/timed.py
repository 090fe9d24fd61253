"""A made-up bench.json: three sizes in float32 and one in float64, on one thread and on two, and a row that failed."""

from __future__ import annotations

import json
from typing import Any

from opmatrix.basics.files import sha256
from opmatrix.project.paths import Paths

KERNEL = "native/operator_00/kernel.h"
SIZES = (1_000, 100_000, 1_000_000)
# Seconds per byte on one thread. A call takes a second per gigabyte in the operator, half of it in the peer of torch.
CONTESTANTS = {"torch library": 1e-9, "ORT library": 4e-9, "torch": 5e-10, "decomposed": 3e-8}
OURS = ("torch library", "ORT library")
RATIOS = {"torch": ("torch library", 2.0), "decomposed": ("ORT library", 0.125)}


def contestant(name: str, size: float, threads: int) -> dict[str, Any]:
    seconds = size * CONTESTANTS[name] / threads
    return {
        "name": name, "side": "torch" if "torch" in name else "onnxruntime", "ours": name in OURS, "skipped": "",
        "seconds": {"median": seconds, "low": seconds * 0.9, "high": seconds * 1.2},
        "bytes_per_second": size / seconds, "flops_per_second": None, "peak_memory": 4096,
        "error": {"output": "y", "absolute": 1e-7, "tolerance_used": 0.25, "problem": ""},
    }  # fmt: skip


def skipped(name: str, why: str) -> dict[str, Any]:
    made = contestant("torch", 1, 1) | {"name": name, "skipped": why}
    return made | dict.fromkeys(("seconds", "bytes_per_second", "peak_memory", "error"))


def row(size: int, dtype: str, threads: int, flops: float | None = 8.0) -> dict[str, Any]:
    """Return a row; `flops`: for each byte."""
    more = [skipped("torchvision", "torchvision is not installed")] if size == SIZES[0] else []
    return {
        "name": f"n{size}_{dtype}", "types": {"T": dtype}, "shapes": {"x": [size]}, "failed": "", "threads": threads,
        "clock": "cpu" if threads == 1 else "wall", "truth": {"precision": "float64", "problem": ""},
        "bytes": float(size), "flops": None if flops is None else size * flops, "rounds": 40,
        "ended": "narrow" if threads == 1 else "budget",
        "contestants": [*(contestant(name, size, threads) for name in CONTESTANTS), *more],
        "ratios": [{"ours": ours, "peer": peer, "median": ratio, "low": ratio * 0.9, "high": ratio * 1.2}
                   for peer, (ours, ratio) in RATIOS.items()],
    }  # fmt: skip


def document(name: str = "operator_00", *, flops: float | None = 8.0) -> dict[str, Any]:
    """Return bench.json of an operator."""
    rows = [row(size, "float32", threads, flops) for threads in (1, 2) for size in SIZES]
    rows += [row(SIZES[1], "float64", threads, flops) for threads in (1, 2)]
    rows += [{"name": "huge", "types": {"T": "float32"}, "shapes": {}, "failed": "it died of SIGKILL", "threads": 1}]
    return {
        "schema": 2, "op": name, "date": "2026-11-24T15:00:00+00:00",
        "machine": {"processor": "a processor", "processors": 2, "not_pinned": ""},
        "cpu_level": None, "versions": {"torch": "2.13.0", "onnxruntime": "1.31.1"}, "files": {},
        "source": "bench.py", "budget": 3.0, "rows": rows,
    }  # fmt: skip


def write(paths: Paths, found: dict[str, Any], *, files: tuple[str, ...] = ()) -> None:
    """Write bench.json with the digests of `files` as they are now."""
    path = paths.bench_record(found["op"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found | {"files": {file: sha256(paths.root / file) for file in files}}))
