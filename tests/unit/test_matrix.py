from __future__ import annotations

import pytest

from pipeline.errors import UsageError
from pipeline.matrix import Cell, cells, choose_opsets, illegal

DEFAULT = {"legacy": (9, 18), "dynamo": (18, 25), "node": (18,)}
CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")


def test_a_cell_prints_and_parses() -> None:
    assert str(CELL) == "torch2.13-dynamo-opset18-ort1.31"
    assert Cell.parse(str(CELL)) == CELL
    assert CELL.export_name == "torch2.13-dynamo-opset18"


def test_a_cell_without_torch_prints_and_parses() -> None:
    cell = Cell(torch=None, exporter="node", opset=18, ort="1.31")
    assert str(cell) == "node-opset18-ort1.31"
    assert Cell.parse(str(cell)) == cell
    assert cell.export_name == "node-opset18"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "torch2.13-dynamo-opset18",
        "torch2.13-node-opset18-ort1.31",
        "legacy-opset18-ort1.31",
        "torch2.13-onnx-opset18-ort1.31",
        "x" + str(CELL),
    ],
)
def test_what_is_no_cell_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"no cell; a cell is written like 'torch2\.13-dynamo-opset18-ort1\.31'"):
        Cell.parse(text)


@pytest.mark.parametrize(
    ("exporter", "opset", "reason"),
    [
        ("legacy", 6, "the legacy exporter writes opsets 7 to 20, not 6"),
        ("legacy", 21, "the legacy exporter writes opsets 7 to 20, not 21"),
        ("dynamo", 17, "the dynamo exporter writes opsets 18 to 25, not 17"),
        ("dynamo", 26, "the dynamo exporter writes opsets 18 to 25, not 26"),
        ("node", 26, "the node exporter writes opsets 7 to 25, not 26"),
        ("legacy", 20, None),
        ("dynamo", 18, None),
    ],
)
def test_legality_gives_its_reason(exporter: str, opset: int, reason: str | None) -> None:
    assert illegal(exporter, opset) == reason  # type: ignore[arg-type]


def test_cells_are_sorted_by_exporter_and_opset() -> None:
    found = [str(c) for c in cells(DEFAULT, torch="2.13", ort="1.31")]  # type: ignore[arg-type]
    assert found == [
        "torch2.13-legacy-opset9-ort1.31",
        "torch2.13-legacy-opset18-ort1.31",
        "torch2.13-dynamo-opset18-ort1.31",
        "torch2.13-dynamo-opset25-ort1.31",
        "node-opset18-ort1.31",
    ]


def test_opsets_all_is_every_legal_one() -> None:
    chosen = choose_opsets("all", DEFAULT)  # type: ignore[arg-type]
    assert chosen == {"legacy": tuple(range(7, 21)), "dynamo": tuple(range(18, 26)), "node": tuple(range(7, 26))}


def test_an_opset_goes_to_every_exporter_that_writes_it() -> None:
    assert choose_opsets("9,18,25", DEFAULT) == DEFAULT | {"node": (9, 18, 25)}  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", ["", "18,", "eighteen", "18 20", "-1"])
def test_other_words_for_opsets_are_refused(asked: str) -> None:
    with pytest.raises(UsageError, match="write 'default', 'all' or opsets like '18,20'"):
        choose_opsets(asked, DEFAULT)  # type: ignore[arg-type]


def test_an_opset_that_no_exporter_writes_is_refused_with_both_reasons() -> None:
    with pytest.raises(UsageError, match="legacy exporter writes opsets 7 to 20, not 30; the dynamo exporter"):
        choose_opsets("18,30", DEFAULT)  # type: ignore[arg-type]
