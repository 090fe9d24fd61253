from __future__ import annotations

from collections.abc import Mapping

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.project.cells import (
    ORT,
    TORCH,
    Cell,
    Choice,
    Exporter,
    all_cells,
    choose_cells,
    choose_opsets,
    ir_version,
    nearest_older,
    why_unreadable,
    why_unsupported,
)

DEFAULT: dict[Exporter, tuple[int, ...]] = {"legacy": (9, 18), "dynamo": (18, 25), "node": (18,)}
cell = Cell.parse
CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")


@pytest.mark.parametrize(
    ("one", "export"),
    [(CELL, "torch2.13-dynamo-opset18"), (Cell(torch=None, exporter="node", opset=18, ort="1.31"), "node-opset18")],
)
def test_a_cell_prints_and_parses(one: Cell, export: str) -> None:
    assert (str(one), one.export_name) == (f"{export}-ort1.31", export)
    assert Cell.parse(str(one)) == one


def test_the_matrix_has_every_cell_of_the_tables() -> None:
    found = [*all_cells()]
    assert len(found) == len({*found}) and {CELL, Cell(torch=None, exporter="node", opset=7, ort="1.16")} <= {*found}
    assert all(cell(str(one)) == one and not why_unsupported(one.exporter, one.opset, one.torch) for one in found)


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
def test_an_invalid_cell_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a cell; a cell is written like 'torch2\.13-dynamo-opset18-ort1\.31'"):
        Cell.parse(text)


@pytest.mark.parametrize(
    ("torch", "exporter", "opset", "reason"),
    [
        ("2.13", "legacy", 6, "the legacy exporter of torch 2.13 writes opsets 7 to 20, not 6"),
        ("2.13", "legacy", 21, "the legacy exporter of torch 2.13 writes opsets 7 to 20, not 21: the model would "
         "import opset 21, with the nodes of opset 20"),
        ("2.15", "legacy", 24, "the legacy exporter of torch 2.15 writes opsets 7 to 20, not 24"),
        ("2.9", "dynamo", 17, "the dynamo exporter of torch 2.9 writes opsets 18 to 25, not 17"),
        ("2.13", "dynamo", 26, "the dynamo exporter of torch 2.13 writes opsets 18 to 25, not 26"),
        ("1.13", "legacy", 18, "the legacy exporter of torch 1.13 writes opsets 7 to 17, not 18"),
        ("2.0", "dynamo", 18, "torch 2.0 has no exporter that takes a custom_translation_table; torch 2.6 is the "
         "first"),
        (None, "node", 26, "the node exporter writes opsets 7 to 25, not 26"),
        ("2.9", "legacy", 20, None),
        ("2.0", "legacy", 18, None),
        ("2.13", "dynamo", 18, None),
    ],
)  # fmt: skip
def test_unsupported_cells_have_a_reason(torch: str | None, exporter: Exporter, opset: int, reason: str | None) -> None:
    assert why_unsupported(exporter, opset, torch) == reason


@pytest.mark.parametrize("version", ["2.14", "2.99", "3.0"])
def test_a_torch_without_a_row_is_as_the_nearest_older_one(version: str) -> None:
    assert why_unsupported("legacy", 20, version) is None
    said = why_unsupported("dynamo", 17, version)
    assert said == f"the dynamo exporter of torch {version} writes opsets 18 to 25, not 17"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch2.13-dynamo-opset18-ort1.16", "ONNX Runtime 1.16 reads IR versions up to 9, and the dynamo exporter "
         "writes 10"),
        ("torch2.13-legacy-opset20-ort1.16", "ONNX Runtime 1.16 reads opsets up to 19, not 20"),
        ("torch2.13-dynamo-opset23-ort1.21", "ONNX Runtime 1.21 reads opsets up to 22, not 23"),
        ("torch2.13-legacy-opset18-ort1.16", None),
        ("node-opset19-ort1.16", None),
        ("torch2.13-dynamo-opset21-ort1.18", None),
        ("torch2.13-dynamo-opset25-ort1.24", None),
        ("node-opset19-ort1.17", None),  # 1.17 and 2.0 have no row, and are as the nearest older one
        ("node-opset20-ort1.17", "ONNX Runtime 1.17 reads opsets up to 19, not 20"),
        ("node-opset25-ort2.0", None),
    ],
)  # fmt: skip
def test_what_an_onnx_runtime_reads(name: str, reason: str | None) -> None:
    assert why_unreadable(cell(name)) == reason


@pytest.mark.parametrize(("factor", "version"), [("torch", "1.12"), ("ort", "1.15"), ("torch", "main")])
def test_a_version_older_than_all_rows_is_an_error(factor: str, version: str) -> None:
    table: Mapping[str, object] = TORCH if factor == "torch" else ORT
    title = {"torch": "torch", "ort": "ONNX Runtime"}[factor]
    with pytest.raises(
        UsageError, match=f"^{title} {version} is too old; allowed: .* and newer. To see .* opmatrix doc"
    ):
        nearest_older(factor, table, version)


@pytest.mark.parametrize(("opset", "version"), [(7, 3), (9, 4), (14, 7), (15, 8), (18, 8), (19, 9), (20, 9), (25, 10)])
def test_the_ir_version_of_a_model(opset: int, version: int) -> None:
    assert ir_version("node", opset) == version


def chosen(**choice: str) -> list[str]:
    found = choose_cells(
        Choice(**choice),
        default=DEFAULT,
        torch="2.13",
        ort="1.31",
        torches={"1.13": False, "2.9": True, "2.13": True},
        orts={"1.18": False, "1.31": True},
    )
    return [str(c) for c in found]


@pytest.mark.parametrize(
    ("choice", "cells"),
    [
        ({}, "torch2.13-legacy-opset9 torch2.13-legacy-opset18 torch2.13-dynamo-opset18 torch2.13-dynamo-opset25"),
        (
            {"torch": "2.13,2.9", "opsets": "18"},
            "torch2.9-legacy-opset18 torch2.9-dynamo-opset18 torch2.13-legacy-opset18 torch2.13-dynamo-opset18",
        ),
    ],
)
def test_cells_are_sorted_by_torch_exporter_and_opset(choice: dict[str, str], cells: str) -> None:
    """Another torch adds no second cell of nodes."""
    assert chosen(**choice) == [f"{name}-ort1.31" for name in (*cells.split(), "node-opset18")]


def test_all_has_every_opset_that_each_torch_writes_and_made_the_existing_environments() -> None:
    found = chosen(torch="all", ort="1.18")
    assert [c for c in found if "1.13" in c] == ["torch1.13-legacy-opset9-ort1.18"]
    assert len(found) == 1 + 4 + 4 + 1
    assert chosen(torch="2.9", ort="all") == chosen(torch="2.9", ort="1.18,1.31")
    assert chosen(torch="made", ort="made") == chosen(torch="2.9,2.13", ort="1.31")


def test_an_opset_applies_to_every_exporter_that_writes_it() -> None:
    found = choose_opsets("all", DEFAULT, "2.13")
    assert found == {"legacy": tuple(range(7, 21)), "dynamo": tuple(range(18, 26)), "node": tuple(range(7, 26))}
    assert choose_opsets("all", DEFAULT, "1.13")["dynamo"] == ()
    assert choose_opsets("9,18,25", DEFAULT, "2.13") == DEFAULT | {"node": (9, 18, 25)}
    assert choose_opsets("9,18", DEFAULT, "1.13") == {"legacy": (9,), "dynamo": (), "node": (9, 18)}


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        *(({"opsets": asked}, "write 'default', 'all' or opsets like '18,20'")
          for asked in ("", "18,", "eighteen", "18 20", "-1")),
        ({"opsets": "18,30"}, r"2\.13 writes opsets 7 to 20, not 30; the dynamo exporter of torch 2\.13 wri"),
        ({"torch": "1.13", "opsets": "18"}, r"torch 1\.13 writes opsets 7 to 17, not 18; torch 1\.13 has no exporter"),
        ({"torch": "2.99"}, r"^torch='2\.99': unknown version '2\.99'; did you mean '2\.9'\?; allowed: 1\.13, 2\.9"),
        ({"ort": "1.31,1.17"}, r"^ort='1\.31,1\.17': unknown version '1\.17'"),
        ({"torch": ""}, "^torch='': unknown version ''"),
        ({"torch": "2.6"},
         r"^torch='2\.6': nothing pins an environment for 2\.6; allowed: .*\. Write requirements/torch2\.6\.txt and"),
    ],
)  # fmt: skip
def test_an_invalid_choice_is_refused_with_every_reason(choice: dict[str, str], message: str) -> None:
    """An opset that one of the chosen torches writes is none."""
    assert chosen(torch="1.13,2.9", opsets="18")[0] == "torch2.9-legacy-opset18-ort1.31"
    with pytest.raises(UsageError, match=message):
        chosen(**choice)


def test_a_choice_is_printed_as_variables_of_doit_and_that_of_the_installed_versions_is_the_default() -> None:
    assert str(Choice()) == ""
    assert str(Choice(torch="2.9", opsets="18")) == "torch=2.9 opsets=18"
    assert Choice(torch="2.13", ort="1.31").normalized(torch="2.13", ort="1.31") == Choice()
    both = Choice(torch="2.9,2.13", ort="all", opsets="18")
    assert both.normalized(torch="2.13", ort="1.31") == both
