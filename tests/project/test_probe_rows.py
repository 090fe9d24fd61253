"""The output of a probe: the measured row, and every difference from the declared one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opmatrix.project.cells import ORT, TORCH, Ort, ir_version
from opmatrix.project.measured import Export, ort_differences, source, torch_differences, torch_row


def declared(version: str) -> list[Export]:
    """Return the probe's result for a torch that matches its row."""
    row = TORCH[version]
    found = [Export(exporter="legacy", opset=o, ir=ir_version("legacy", o)) for o in row.legacy]
    found += [Export(exporter="legacy", opset=o, ir=9, label=True) for o in row.label]
    found.append(Export(exporter="legacy", opset=24, wrong="it raised ValueError"))
    found.append(Export(exporter="dynamo", opset=17, wrong="it wrote opset 18"))
    return found + [Export(exporter="dynamo", opset=o, ir=10) for o in row.dynamo]


def differences(version: str, found: Sequence[Export]) -> list[str]:
    return torch_differences(version, found, TORCH[version])


def test_no_difference() -> None:
    assert differences("2.13", declared("2.13")) == []
    assert differences("1.13", declared("1.13")) == []
    assert all(ort_differences(version, row, row) == [] for version, row in ORT.items())


def test_a_legal_opset_that_does_not_run() -> None:
    found = declared("2.13")
    found[-1] = replace(found[-1], wrong="it wrote opset 18")
    assert differences("2.13", found) == [
        "torch 2.13, dynamo exporter, opset 25: declared legal, and it wrote opset 18",
        'The row that was measured: "2.13": Torch(legacy=range(7, 21), dynamo=range(18, 25), label=range(21, 24))',
    ]


def test_an_illegal_opset_that_runs() -> None:
    found = [replace(one, wrong="", ir=10) if one.wrong else one for one in declared("2.13")]
    lines = [line for line in differences("2.13", found) if "illegal" in line]
    assert lines == [
        "torch 2.13, legacy exporter, opset 24: declared illegal, and it runs",
        "torch 2.13, dynamo exporter, opset 17: declared illegal, and it runs",
    ]


def test_a_label_and_an_ir_version() -> None:
    found = declared("2.13")
    found[0], found[14] = replace(found[0], ir=4), replace(found[14], label=False, wrong="it raised ValueError")
    lines = differences("2.13", found)
    assert lines[0] == "torch 2.13, legacy exporter, opset 7: IR version 4, declared: 3"
    assert lines[1] == "torch 2.13, legacy exporter, opset 21: its nodes are not of an older opset; declared otherwise"


def test_the_measured_row() -> None:
    row = torch_row(declared("2.13"))
    assert row == TORCH["2.13"]
    assert source("2.17", row) == '"2.17": Torch(legacy=range(7, 21), dynamo=range(18, 26), label=range(21, 24))'
    assert source("1.33", Ort(ir=13, opset=27)) == '"1.33": Ort(ir=13, opset=27)'
    assert source("1.13", torch_row(declared("1.13"))) == '"1.13": Torch(legacy=range(7, 18), no_dynamo=...)'


def test_of_opsets_with_gaps_the_row_has_the_longest_part() -> None:
    assert torch_row(one for one in declared("2.13") if one.opset not in (9, 20, 25)).legacy == range(10, 20)
    assert torch_row(one for one in declared("2.13") if one.opset not in (21, 22)).dynamo == range(23, 26)


def test_an_onnx_runtime_that_reads_more() -> None:
    lines = ort_differences("1.18", Ort(ir=10, opset=22), ORT["1.18"])
    assert lines[0] == "ONNX Runtime 1.18 reads opsets up to 22, declared: 21"
