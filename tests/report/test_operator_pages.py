"""The page of operators shows each part of a declaration, and escapes text that would break its tables."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.declaration.load import Operator, load_operators
from opmatrix.project.paths import Paths
from opmatrix.report import operator_pages
from opmatrix.report.operator_pages import code, plain, table
from opmatrix.spec import Attribute, Case, Model, OnnxOp, OpSpec, Override, Random, Tolerance, TorchOp, ValueRule
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
