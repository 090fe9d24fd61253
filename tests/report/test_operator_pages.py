"""The page of operators shows each part of a declaration, and escapes text that would break its tables. The page has
the errors of a few failing cases, equal ones once, and each operator's before another message's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.declaration.load import Operator, load_operators
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict as verdicts
from opmatrix.records.verdict import CaseKind, CaseResult, CheckRecord, FailedStep, Verdict
from opmatrix.report import operator_pages
from opmatrix.report import page as html_page
from opmatrix.report.operator_pages import code, plain, table
from opmatrix.report.page import MOST, Background, read_mismatches
from opmatrix.report.report_json import document
from opmatrix.spec import Attribute, Case, Model, OnnxOp, OpSpec, Override, Random, Tolerance, TorchOp, ValueRule
from tests.report.many import ENVIRONMENTS, cells, verdict
from tests.support.specs import attribute, declare, inputs, outputs

ROOT = Path(__file__).parents[2]

SPEC = declare(
    "pick() -> a: T like x",
    *inputs("x: T[N, 3, ...]", doc="rows"),
    *inputs("y: T like x, weights: float32[N]?, more: T*"),
    attribute("mode='near'", allowed=("near", "far")),
    Attribute(name="k", kind="int", torch_name="count", onnx_name="signed", minimum=1, maximum=9, doc="how many"),
    attribute("deep=False", torch_only=True),
    *outputs("b: float64[2*N]", doc="twice"),
    *outputs("c: int64[?, ?]"),
    torch="my::pick",
    onnx=OnnxOp(domain="my.domain", op_type="Pick", versions=(1, 2)),
    summary="Pick rows | of x.",
    types={"T": ("float32", "int64")},
    tolerances={"custom": {"float32": Tolerance(rtol=1e-6, atol=0)}},
    min_opset=11,
)
MODEL = Model(
    name="small",
    types={"T": "float32"},
    attributes={"mode": "far"},
    dynamic={"x": ("N", None, "L"), "y": ("N", None, "L")},
    domain_version=2,
    unsupported="no such thing",
    cases=(Case(name="one", inputs={"x": Random(shape=(1, 3))}),),
)


def lines(spec: OpSpec = SPEC, readme: str = "") -> list[str]:
    return operator_pages.render([Operator(spec=spec, models=(MODEL,))], {spec.name: readme}, ops="../ops").splitlines()


@pytest.mark.parametrize(
    "line",
    [
        "| [pick](#pick) | `my::pick` | `my.domain::Pick` | custom | Pick rows \\| of x. |",
        "| torch | `my::pick(Tensor x, Tensor y, Tensor? weights, Tensor[] more, str mode='near', int count, bool "
        "deep=False) -> (Tensor, Tensor, Tensor)` |",
        "| ONNX | `Pick` of domain `my.domain`, since version 1 |",
        "| versions of the domain | 1, 2 |",
        "| opsets | from 11 on |",
        "| `mode` | string | `'near'` | one of `near`, `far` |  |  |",
        "| `k` | int | required | ≥ 1; ≤ 9 | `count` in torch; `signed` in ONNX | how many |",
        "| `deep` | bool | `False` |  | in torch alone |  |",
        "| `x` | `T` | `(N, 3, ...)` |  | rows |",
        "| `y` | `T` | that of `x` |  |  |",
        "| `weights` | `tensor(float)` | `(N,)` | may be absent |  |",
        "| `more` | `T` | any | any number |  |",
        "| `a` | `T` | that of `x` |  |",
        "| `b` | `tensor(double)` | `(2*N,)` | twice |",
        "| `c` | `tensor(int64)` | rank 2; the kernel finds its sizes |  |",
        "| `T` | `tensor(float)`, `tensor(int64)` |",
        "| custom | float32 | 1e-06 | 0 |",
        "| `small` | T = float32 | `mode = 'far'` | `N`, `L` | 2 | 1 | no such thing |",
    ],
)
def test_the_page_shows_each_part_of_the_declaration(line: str) -> None:
    assert line in lines()


def test_the_page_shows_rules_of_values() -> None:
    weights = replace(SPEC.inputs[2], values=ValueRule(minimum=0.5, maximum="k", sorted="ascending", spans=True))
    page = lines(replace(SPEC, inputs=(*SPEC.inputs[:2], weights, SPEC.inputs[3])))
    assert "| name | type | shape | how many | values | meaning |" in page
    rule = "at least 0.5 and at most k; sorted in ascending order; start at 0.5 and end at k"
    assert f"| `weights` | `tensor(float)` | `(N,)` | may be absent | {rule} |  |" in page


def test_the_page_shows_the_introduction_of_a_readme() -> None:
    readme = (
        "# pick\n\nIt picks, as [here](cases.py) and [there](https://x.org).\n\n    y = x[k]\n\n## Tolerances\n\nNo.\n"
    )
    page = "\n".join(lines(readme=readme))
    assert "It picks, as [here](../ops/pick/cases.py) and [there](https://x.org).\n\n    y = x[k]\n" in page
    assert "No." not in page
    assert "[tolerances and their reasons](../ops/pick/README.md)" in page
    assert "README.md" not in "\n".join(lines())


def test_operators_without_a_kernel_or_torch() -> None:
    override = TorchOp(name="aten::pick", overrides=(Override(name="aten::pick", first="2.0", last="2.9"),))
    contrib = "\n".join(lines(OpSpec(**{**vars_of(SPEC), "torch": override, "runtime": "contrib"})))
    assert "| replaces | `aten::pick` from torch 2.0 on up to torch 2.9 |" in contrib
    assert "| kernel | of ONNX Runtime itself (a contrib op) |" in contrib
    alone = "\n".join(lines(OpSpec(**{**vars_of(SPEC), "torch": None})))
    assert "| torch | none: it exists in ONNX alone |" in alone
    uses = "\n".join(lines(OpSpec(**{**vars_of(SPEC), "uses": ("other",)})))
    assert "| ONNX | no node of its own; its lowering writes those of `other` |" in uses


def vars_of(spec: OpSpec) -> dict[str, object]:
    return {name: getattr(spec, name) for name in OpSpec.__dataclass_fields__}


def test_text_is_escaped() -> None:
    assert code("a`b") == "``a`b``" and code("`") == "`` ` ``" and code("") == ""
    assert plain("ops/<name>/ and `<b>`\nof ``<c>``") == "ops/\\<name>/ and `<b>` of ``<c>``"
    assert table(("a", "b"), [("1|2", ""), ("3", "")]) == "| a |\n|---|\n| 1\\|2 |\n| 3 |"
    assert table(("a",), []) == ""


def test_a_project_without_operators() -> None:
    assert operator_pages.render([], {}, ops="ops") == "# Operators\n\nThis project has no operators.\n"


def test_the_stage_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    operator_pages.run(Paths(ROOT), into=tmp_path)
    page = (tmp_path / "operators.md").read_text()
    assert [f"## {o.name}" for o in load_operators(Paths(ROOT))] == [
        s for s in page.splitlines() if s.startswith("## ")
    ]
    assert capsys.readouterr().out.strip().endswith("operators.md")
    for target in {t for t in re.findall(r"\]\(([^)#]+)\)", page) if "://" not in t}:
        assert (tmp_path / target).exists(), target


CELLS = [*cells()]


def failing(paths: Paths, op: str, cell: Cell, *, detail: str = "3 of 64 elements differ") -> Verdict:
    """Write the record of case_1, which is wrong, as verify does."""
    found = verdict(op, cell, "mismatched")
    found = replace(found, cases=(found.cases[0], replace(found.cases[1], detail=detail)))
    verdicts.write_mismatches(paths.mismatches(paths.verdict(*found.key)), [record(f"{found}: {detail}")])
    return found


def record(marker: str, case: str = "case_1") -> dict[str, object]:
    return {"case": case, "model": "static", "marker": marker}


def markers(paths: Paths, found: Sequence[Verdict], checks: Sequence[CheckRecord] = ()) -> list[object]:
    return [one["marker"] for one in read_mismatches(paths, found, checks)["records"]]


def test_nothing_fails(tmp_path: Path) -> None:
    assert read_mismatches(Paths(tmp_path), [verdict("op", CELLS[0])], []) == html_page.NO_MISMATCHES


def test_cells_with_the_same_message_share_the_record_of_the_first(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [failing(paths, "op", cell) for cell in CELLS[:9]]
    page = read_mismatches(paths, found, [])
    assert [one["of"] for one in page["records"]] == [str(found[0])]
    assert page["shown"] == {str(one): {"case_1/static": 0} for one in found}
    assert page["failing"] == 9


def test_each_operator_comes_before_the_second_message_of_one(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [failing(paths, "a", cell, detail=f"error {n}") for n, cell in enumerate(CELLS[: MOST + 5])]
    found += [failing(paths, name, CELLS[0]) for name in "bc"]
    shown = markers(paths, found)
    assert [str(one).partition("-")[0] for one in shown[:4]] == ["a", "b", "c", "a"]
    assert len(shown) == MOST and read_mismatches(paths, found, [])["failing"] == MOST + 7


@pytest.mark.parametrize("damaged", ["", "[]", "{}", '{"mismatches": [{"case": "case_1"}]}', '{"mismatches": 3}'])
def test_a_case_without_a_readable_record_has_none(tmp_path: Path, damaged: str) -> None:
    paths = Paths(tmp_path)
    found = failing(paths, "op", CELLS[0])
    paths.mismatches(paths.verdict(*found.key)).write_text(damaged)
    assert markers(paths, [found]) == []


def test_the_record_of_an_earlier_run_is_removed(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = failing(paths, "op", CELLS[0])
    verdicts.write_mismatches(paths.mismatches(paths.verdict(*found.key)), [])
    assert not [*paths.build.rglob("*.mismatches.json")] and markers(paths, [found]) == []


KINDS: dict[CaseKind, str] = {"drawn": "drawn_inputs", "forbidden": "forbidden_inputs"}


def test_the_record_of_a_drawn_input(tmp_path: Path) -> None:
    """The search fails as one case. Other failed cases have no numbers, and none is looked for."""
    paths, found = Paths(tmp_path), verdict("op", CELLS[0], "failed")
    drawn, other = (
        CaseResult(case=name, model=name, outcome="failed", kind=kind, detail="differs") for kind, name in KINDS.items()
    )
    found = replace(found, cases=(*found.cases, drawn, other))
    one = {"case": "drawn_inputs", "model": "drawn_inputs", "drawn": "found_1", "marker": "it"}
    verdicts.write_mismatches(paths.mismatches(paths.verdict(*found.key)), [one])
    page = read_mismatches(paths, [found], [])
    assert [one["drawn"] for one in page["records"]] == ["found_1"] and page["failing"] == 1
    assert page["shown"] == {str(found): {"drawn_inputs/drawn_inputs": 0}}


@pytest.mark.parametrize("part", ["kernel", "search", "gradient"])
def test_the_records_of_a_check_in_torch(tmp_path: Path, part: str) -> None:
    paths = Paths(tmp_path)
    check = CheckRecord(op="op", check=part, torch="2.13", outcome="failed", detail="differs")
    path = paths.mismatches(paths.check_record(*check.key))
    verdicts.write_mismatches(path, [record("one", "a"), record("two", "b")])
    page = read_mismatches(paths, [], [check, replace(check, check="schema")])
    assert [one["marker"] for one in page["records"]] == ["one", "two"]
    assert page["shown"] == {str(check): {"a/static": 0, "b/static": 1}}


def test_a_check_that_did_not_run_has_no_record(tmp_path: Path) -> None:
    """The file is of an earlier run."""
    paths = Paths(tmp_path)
    blocked = FailedStep(group="compile", name="op")
    check = CheckRecord(op="op", check="kernel", torch="2.13", outcome="failed", detail="not run", blocked_by=blocked)
    verdicts.write_mismatches(paths.mismatches(paths.check_record(*check.key)), [record("one", "a")])
    assert read_mismatches(paths, [], [check]) == html_page.NO_MISMATCHES


def test_cells_of_an_operator_share_what_is_known_of_all_cases(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = [failing(paths, op, cell, detail=f"error {n}") for op in "ab" for n, cell in enumerate(CELLS[:3])]
    for number, one in enumerate(found):
        over = {"cases": ["case_1/static"], "sizes": {"W": [number]}} if number != 3 else None
        verdicts.write_mismatches(paths.mismatches(paths.verdict(*one.key)), [record(str(one))], over)
    page = read_mismatches(paths, found, [])
    assert [one["sizes"] for one in page["over"]] == [{"W": [0]}, {"W": [4]}]
    assert {one["of"][0]: one["over"] for one in page["records"] if one["of"] != str(found[3])} == {"a": 0, "b": 1}


def test_the_page_has_the_records(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    found = failing(paths, "op", CELLS[0])
    html = html_page.render(
        document([found], ENVIRONMENTS), [found], [Background()], (), read_mismatches(paths, [found], [])
    )
    data = html.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(data)["mismatches"]["records"][0]["of"] == str(found)
