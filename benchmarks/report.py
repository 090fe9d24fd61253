"""What the report costs: CPU seconds, memory, the sizes of its files, and how long its page takes to open.

    ./run python benchmarks/report.py [--cells 10000] [--rounds 3]

The verdicts, logs and graphs are synthetic: operators with 26 cases (the mean of this project) in all cells of the
matrix. The errors of a case differ between versions of ONNX Runtime and are equal in the cells of one, as those of
this project are. The step runs in a process of its own, with the verdicts of all cells: first without an earlier
report, then after another error in one cell, then after one cell fails. Its imports count. Chromium opens the page.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from measuring import environment

from opmatrix.basics.files import write_text
from opmatrix.project.cells import Cell, all_cells
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CaseResult, CellKey, Verdict

CASES = 26
NODE = {"op": "Op", "domain": "test.domain", "version": 1, "in": [0], "out": [1], "attributes": {"eps": "1e-05"}}
GRAPH = {"inputs": [[0, "X", "float32[N, 3]"]], "nodes": [NODE], "outputs": [[1, "Y", "float32[N, 3]"]]}

DRAWN = "const done = arguments[0]; requestAnimationFrame(() => setTimeout(() => done(performance.now() / 1000)))"


@dataclass(frozen=True, kw_only=True)
class Measured:
    cpu: float
    megabytes: float


def keys(count: int) -> list[CellKey]:
    """Return at least `count` cells: whole operators, but of a small number one operator in the first ones."""
    cells = [*all_cells()]
    if count < len(cells):
        return [("operator_000", "custom", cell) for cell in cells[:count]]
    return [(f"operator_{n:03}", "custom", cell) for n in range(-(-count // len(cells))) for cell in cells]


def made(op: str, cell: Cell, *, error: float = 1.0) -> Verdict:
    """Return the verdict of a cell in which every case passes."""
    seed = crc32(f"{op} {cell.ort}".encode()) % 1000 + 1
    cases = [
        CaseResult(
            case=f"case_{n:02}_float32",
            model=f"static_{n % 4}",
            outcome="verified",
            error=1.1920928955078125e-07 * seed * n * error,
            ulp=seed / 500 * n,
            tolerance_used=n * seed / 30_000,
            judged_in="float64",
        )
        for n in range(CASES)
    ]
    return Verdict(op=op, lowering="custom", cell=cell, outcome="verified", cases=tuple(cases), library="0" * 64,
                   exported="1" * 64, reference="numpy")  # fmt: skip


def prepare(paths: Paths, asked: Sequence[CellKey]) -> None:
    """Write what the report reads."""
    for op, lowering, cell in asked:
        verdict.write(paths.verdict(op, lowering, cell), made(op, cell))
        log = paths.log(f"verify:{op}-{lowering}@{cell}")
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"$ python -m opmatrix verify {op} --lowering {lowering} --cell {cell}\n")
        models = {f"static_{n}": GRAPH for n in range(4)}
        write_text(paths.graph_drawings(op, lowering, cell), json.dumps(models))
    write_text(paths.verdict_list, "".join(f"{paths.verdict(*key)}\n" for key in asked))


def measure(root: Path, count: int) -> Measured:
    """Run the report step in a process of its own. Exits where that fails."""
    command = [sys.executable, __file__, "--run", str(root), "--cells", str(count)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr}")
    return Measured(**json.loads(done.stdout.splitlines()[-1]))


def run_step(root: Path, count: int) -> None:
    """Write the report, and print what that took as the last line."""
    from opmatrix.basics.errors import ReportError
    from opmatrix.report import write_report

    try:
        write_report.run(Paths(root), keys(count))
    except ReportError as error:
        print(error)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "megabytes": used.ru_maxrss / 1024}))


def opened(page: Path, rounds: int) -> float | None:
    """Return the seconds until Chromium has drawn the page and answers; None without Chromium."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        return None
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--no-sandbox"):
        options.add_argument(argument)
    started = webdriver.Chrome(options=options, service=Service(driver))
    try:
        found = []
        for _ in range(rounds):
            started.get("about:blank")
            started.get(page.as_uri())
            found.append(float(started.execute_async_script(DRAWN)))
        return statistics.median(found)
    finally:
        started.quit()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.run:
        run_step(arguments.run, arguments.cells)
        return
    with tempfile.TemporaryDirectory(prefix="opmatrix-report-") as folder:
        paths, asked = Paths(Path(folder)), keys(arguments.cells)
        prepare(paths, asked)
        print(f"{len(asked):,} cells of {len({op for op, *_ in asked})} operators with {CASES} cases each\n")
        print(f"{'':<24} {'CPU s':>8} {'MB':>8}")
        show("without a report", [measure(paths.root, arguments.cells)])
        op, lowering, cell = asked[len(asked) // 2]
        path = paths.verdict(op, lowering, cell)
        again = []
        for number in range(arguments.rounds):
            verdict.write(path, made(op, cell, error=1.5 + number))
            again.append(measure(paths.root, arguments.cells))
        show("one cell changed", again)
        failing = []
        for number in range(arguments.rounds):
            detail = f"{number + 3} of 64 elements differ"
            verdict.write(path, replace(made(op, cell), outcome="failed", detail=detail, cases=()))
            failing.append(measure(paths.root, arguments.cells))
        show("one cell failed", failing)
        print()
        for file in sorted(paths.report.iterdir()):
            if file.is_file():
                print(f"{file.name:<24} {file.stat().st_size / 1e6:8.2f} MB")
        if (seconds := opened(paths.report / "index.html", arguments.rounds)) is not None:
            print(f"\nindex.html opens in {seconds:.2f} s")


def show(what: str, found: Sequence[Measured]) -> None:
    cpu, megabytes = (statistics.median(getattr(one, key) for one in found) for key in ("cpu", "megabytes"))
    print(f"{what:<24} {cpu:8.2f} {megabytes:8.0f}")


if __name__ == "__main__":
    main()
