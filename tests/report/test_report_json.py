"""report.json matches the schema in the package, and docs/reference/report-schema.md describes all of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from opmatrix.report.markdown import compare
from opmatrix.report.records import OUTCOMES, SCHEMA
from opmatrix.report.report_json import document, text
from tests.report.many import ENVIRONMENTS, checks, records
from tests.support.json_schema import mistakes

WHOLE: dict[str, Any] = json.loads(resources.files("opmatrix.report").joinpath("report.schema.json").read_text())


def report() -> dict[str, Any]:
    """Return a report with every possible part, as it is read from its file."""
    found, before = records(3), records(2)[1:]
    made = document(found, ENVIRONMENTS, checks=checks())
    made["changes"] = compare(
        made, document([*before, *records(4)[-1:]], ENVIRONMENTS | {"torch2.9": {"torch": "2.9.0"}})
    )
    loaded: dict[str, Any] = json.loads(text(made))
    return loaded


def test_a_report_matches_the_schema() -> None:
    whole = report()
    assert not list(mistakes(whole, WHOLE))
    assert not list(mistakes(whole | {"changes": None}, WHOLE))
    assert all(whole["changes"][kind] for kind in ("new", "gone")) and whole["changes"]["versions"]
    assert {c["outcome"] for c in whole["cells"]} == {*OUTCOMES}


def _delete(found: dict[str, Any]) -> None:
    del found["cells"][3]["ort"]


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (lambda r: r.update(schema=1), "report.schema: 1 is not 5"),
        (lambda r: r["counts"].pop("failed"), "report.counts: no 'failed'"),
        (lambda r: r["check_counts"].pop("failed"), "report.check_counts: no 'failed'"),
        (lambda r: r["checks"][0].update(outcome="fine"), "report.checks[0].outcome: 'fine' is not"),
        (_delete, "report.cells[3]: no 'ort'"),
        (lambda r: r["cells"][0].update(outcome="fine"), "report.cells[0].outcome: 'fine' is not"),
        (lambda r: r["cells"][0].update(torch="2.13.0"), "report.cells[0].torch: '2.13.0' is none of"),
        (lambda r: r["cells"][0].update(opset=True), "report.cells[0].opset: True is no integer"),
        (
            lambda r: r["cases"]["operator_00-custom-1"][0].update(ulp=-1),
            "report.cases.operator_00-custom-1[0].ulp: -1 is below 0",
        ),
        (lambda r: r["changes"]["new"][0].pop("now"), "report.changes.new[0]: no 'now'"),
        (lambda r: r["environments"].pop("main"), "report.environments: no 'main'"),
        (lambda r: r["environments"]["ort1.16"].pop("python"), "report.environments.ort1.16: no 'python'"),
        (
            lambda r: r["changes"]["versions"].update(main={"torch": ["1"]}),
            "report.changes.versions.main.torch: 1 items",
        ),
        (lambda r: r["changes"]["gone"][0].update(name="Op"), "report.changes.gone[0].name: 'Op' does not match"),
    ],
)
def test_the_schema_refuses_invalid_reports(plant: Callable[[dict[str, Any]], None], said: str) -> None:
    whole = report()
    plant(whole)
    assert [m for m in mistakes(whole, WHOLE) if m.startswith(said)]


def test_cells_of_an_operator_with_equal_cases_share_a_list() -> None:
    found = records(2)
    whole = document(found, ENVIRONMENTS)
    assert len(whole["cases"]) == 2 * 3, "verified, mismatched, and without cases, of each operator"
    for cell, one in zip(whole["cells"], found, strict=True):
        assert whole["cases"][cell["cases"]] == [case.as_json() for case in one.cases]
        assert cell["cases"].startswith(f"{one.op}-custom-")


def test_the_schema_has_the_version_and_the_outcomes_of_the_code() -> None:
    assert WHOLE["properties"]["schema"]["const"] == SCHEMA
    assert WHOLE["$defs"]["outcome"]["enum"] == [*OUTCOMES]


def test_every_key_of_a_report_is_described_and_documented(root: Path) -> None:
    page = (root / "docs/reference/report-schema.md").read_text()
    whole = report()
    described = {
        "": (whole, WHOLE),
        "changes": (whole["changes"], WHOLE["properties"]["changes"]),
        "change": (whole["changes"]["new"][0], WHOLE["$defs"]["change"]),
        "cell": (whole["cells"][0], WHOLE["$defs"]["cell"]),
        "check": (whole["checks"][0], WHOLE["$defs"]["check"]),
        "case": (whole["cases"]["operator_00-custom-1"][0], WHOLE["$defs"]["case"]),
    }
    for where, (value, schema) in described.items():
        assert value.keys() == schema["properties"].keys() == {*schema["required"]}, where
        named = {f"`{key}`" if where != "changes" else f"`changes.{key}`" for key in value}
        assert not {name for name in named if name not in page}, where
