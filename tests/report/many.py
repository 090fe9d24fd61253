"""Records of a matrix with many versions of torch and ONNX Runtime, as tox with all environments makes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opmatrix.project.cells import Cell, Exporter
from opmatrix.records.verdict import CaseResult, Cases, CheckRecord, Outcome, Verdict
from opmatrix.report.page import Background

TORCH: Sequence[tuple[str, Exporter, Sequence[int]]] = (
    ("1.13", "legacy", (9, 12, 15, 17)),
    ("2.0", "legacy", (9, 12, 15, 17, 18)),
    *((torch, "legacy", (9, 12, 15, 17, 18, 20)) for torch in ("2.6", "2.9", "2.13", "2.15")),
    *((torch, "dynamo", (18, 20, 21, 23, 25)) for torch in ("2.6", "2.9", "2.13", "2.15")),
)
RUNTIMES = ("1.16", "1.18", "1.21", "1.24", "1.31")
ENVIRONMENTS = {
    "main": {"python": "3.11.7", "torch": "2.13.0+cpu", "onnxruntime": "1.31.1"},
    "torch2.9": {"python": "3.11.7", "torch": "2.9.1+cpu", "numpy": "2.3.1"},
    "ort1.16": {"python": "3.11.2", "onnxruntime": "1.16.3", "numpy": "1.26.4"},
}

# A custom node between two ONNX nodes, a constant, and an input that no node reads.
GRAPH = {
    "inputs": [[0, "X", "float32[2, n]"], [1, "unused", "float32[]"]],
    "nodes": [
        {"op": "Abs", "in": [0], "out": [2], "attributes": {}},
        {"op": "mygroupnorm", "domain": "mydomain", "version": 2, "in": [2, None], "out": [3],
         "attributes": {"eps": "1e-05"}},
        {"op": "Reshape", "in": [3, "[0, -1]"], "out": [4], "attributes": {}},
        {"op": "Add", "in": [4, 0], "out": [5], "attributes": {}},
    ],
    "outputs": [[5, "Y", "float32[2, n]"]],
}  # fmt: skip
BACKGROUND = Background(log="$ python -m opmatrix verify\nline", pictures={"static": GRAPH, "dynamic": GRAPH})


def cells() -> Iterator[Cell]:
    """Yield 265 cells with torch, and three without."""
    for ort in RUNTIMES:
        for torch, exporter, opsets in TORCH:
            yield from (Cell(torch=torch, exporter=exporter, opset=opset, ort=ort) for opset in opsets)
    yield from (Cell(torch=None, exporter="node", opset=opset, ort="1.31") for opset in (9, 18, 25))


def verdict(op: str, cell: Cell, outcome: Outcome = "verified", *, detail: str = "", cases: int = 2) -> Verdict:
    """Return a verdict whose second case is wrong where the cell is mismatched."""
    results = []
    for n in range(cases):
        wrong = outcome == "mismatched" and n == 1
        result = CaseResult(
            case=f"case_{n}",
            model="static" if n % 2 else "dynamic",
            outcome="mismatched" if wrong else "verified",
            error=1e-6 * (n + 1),
            ulp=float(n),
            tolerance_used=3.5 if wrong else 0.1 * (n % 10 + 1),
            detail="3 of 64 elements differ" if wrong else "",
            judged_in="declared dtype: declared discontinuous: ties" if n == 1 else "float64",
        )
        results.append(result)
    done = outcome in ("verified", "mismatched")
    return Verdict(op=op, lowering="custom", cell=cell, outcome=outcome, detail=detail,
                   cases=Cases(results if done else ()))  # fmt: skip


def records(operators: int, *, cases: int = 2) -> list[Verdict]:
    """Return the records of all cells of some operators: unsupported on ONNX Runtime 1.16, and a few that are wrong."""
    found = []
    for number in range(operators):
        for place, cell in enumerate(cells()):
            outcome: Outcome = "verified"
            detail = ""
            if cell.ort == "1.16" and cell.opset > 19:
                outcome, detail = "unsupported", "ONNX Runtime 1.16 reads opset 19 at most"
            elif (place + number) % 97 == 50:
                outcome, detail = "mismatched", "1 of 2 cases; case_1: 3 of 64 elements differ"
            elif (place + number) % 97 == 60:
                outcome, detail = "failed", "died of SIGSEGV after 0.1 s"
            made = verdict(f"operator_{number:02}", cell, outcome, detail=detail, cases=cases)
            found.append(made)
    return found


def checks() -> list[CheckRecord]:
    """Return the records of two operators' checks: one is wrong, one not supported, and one blocked by a step."""
    detail = "operator_00: y differs in torch\n3 of 64 elements"
    return [
        CheckRecord(op="operator_00", check="kernel", torch="2.9", outcome="verified",
                    results=({"case": "a"}, {"check": "samples", "note": "no sample covers x"})),
        CheckRecord(op="operator_00", check="kernel", torch="2.13", outcome="failed", detail=detail),
        CheckRecord(op="operator_00", check="gradient", torch="1.13", outcome="unsupported", detail="needs torch 2.4"),
        CheckRecord(op="operator_01", check="agreement", lowering="custom", torch="2.9+2.13", outcome="verified",
                    results=({"export": "torch2.9-legacy-opset18"},)),
        CheckRecord(op="", check="environment:torch2.6", outcome="failed", detail="no network"),
    ]  # fmt: skip
