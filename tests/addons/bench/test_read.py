"""ops/<name>/bench.py: its mistakes, with file and field or line, the default rows, and what a row moves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.addons.bench.read import cost, default, read
from opmatrix.basics.errors import SpecError, UsageError
from opmatrix.bench.spec import Row
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, Model, Random
from tests.support.projects import ROOT, write_files

HEAD = """from opmatrix.bench.spec import Bench, Function, OnnxModel, OnnxNode, Row
from opmatrix.spec import Random

X = Random(shape=(8,))
"""
ROW = 'Row(name="r", types={"T": "float32"}, inputs={"x": X, "y": X}, attributes={"alpha": 1.0})'


@pytest.fixture
def operator(tmp_path: Path) -> tuple[Paths, Operator]:
    """Return a project with dual_residual, and the operator."""
    names = [f"ops/dual_residual/{name}.py" for name in ("spec", "cases", "reference")]
    write_files(tmp_path, {name: (ROOT / name).read_text() for name in names})
    return Paths(tmp_path), load_operator(Paths(tmp_path), "dual_residual")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("BENCH = Bench(rows=(", r":5: SyntaxError: '\(' was never closed \(bench\.py, line 5\)$"),
        ("import nowhere", r":5: ModuleNotFoundError: No module named 'nowhere'$"),
        ("x = 1\n1 / 0", r":6: ZeroDivisionError: division by zero$"),
        ("BENCHES = 1", r": found NoneType as BENCH, allowed: Bench$"),
        ("BENCH = Bench(rows=())", r": BENCH\.rows: found none, allowed: at least one Row$"),
        ("BENCH = Bench(row=(ROW,))", r": BENCH\.row: unknown argument of Bench; did you mean 'rows'\?$"),
        ("BENCH = Bench(rows=[ROW])", r": BENCH\.rows: found \[.*\], allowed: a tuple of Row$"),
        ("BENCH = Bench(rows=(ROW, ROW))", r": BENCH\.rows: two rows are named 'r'$"),
        ("BENCH = Bench(rows=(Row(name='a b', inputs={}),))",
         r": BENCH\.rows\[0\]\.name: found 'a b', allowed: at most 60 letters, digits, '_', '\.' and '-'$"),
        (f"BENCH = Bench(rows=({ROW.replace('float32', 'int8')},))",
         r": BENCH\.rows\[0\]\.types\['T'\]: found 'int8', allowed: float32, float64, float16, bfloat16"),
        ('BENCH = Bench(rows=(Row(name="r", types={"T": "float32"}, inputs={"x": X}, attributes={"alpha": 1.0}),))',
         r": BENCH\.rows\[0\]\.inputs\['y'\]: missing$"),
        ('BENCH = Bench(rows=(Row(name="r", types={"T": "float32"}, inputs={"x": X, "y": X}),))',
         r": BENCH\.rows\[0\]\.attributes\['alpha'\]: missing; it has no default$"),
        ("BENCH = Bench(rows=(ROW,), flops='2*Q')", r": BENCH\.flops: row 'r': .*'Q'"),
        ("def flops(**_): return -1\nBENCH = Bench(rows=(ROW,), flops=flops)",
         r": BENCH\.flops: row 'r': it gives -1, allowed: a number from 0 on$"),
        ("BENCH = Bench(rows=(ROW,), bytes=lambda: 1)", r": BENCH\.bytes: row 'r': the function raises TypeError: "),
        ("BENCH = Bench(rows=(ROW,), peers=(Function(name='reference', function=abs),))",
         r": BENCH\.peers\[0\]\.name: found 'reference', allowed: 1 to 24 characters, and none of torch library, "),
        ("BENCH = Bench(rows=(ROW,), peers=(Function(name='p', function='torch.relu'),))",
         r": BENCH\.peers\[0\]\.function: found 'torch\.relu', allowed: a function, or 'module:function'$"),
        ("BENCH = Bench(rows=(ROW,), peers=(Function(name='p', function=abs, rows=('s',)),))",
         r": BENCH\.peers\[0\]\.rows: found 's', allowed: r$"),
        ("BENCH = Bench(rows=(ROW,), peers=(OnnxModel(name='p', path='p.onnx'),))",
         r": BENCH\.peers\[0\]\.path: found 'p\.onnx', which is no file in ops/dual_residual/$"),
        ("P = OnnxNode(name='p', op_type='Add')\nBENCH = Bench(rows=(ROW,), peers=(P, P))",
         r": BENCH\.peers: two peers are named 'p'$"),
    ],
)  # fmt: skip
def test_a_mistake(text: str, said: str, operator: tuple[Paths, Operator]) -> None:
    paths, declared = operator
    paths.bench("dual_residual").write_text(HEAD + text.replace("ROW", ROW) + "\n")
    with pytest.raises(SpecError, match=rf"(?m)^ops/dual_residual/bench\.py{said}"):
        read(paths, declared)


def test_a_file_without_a_mistake(operator: tuple[Paths, Operator]) -> None:
    paths, declared = operator
    text = f"BENCH = Bench(rows=({ROW},), flops='4', peers=(OnnxNode(name='Add', op_type='Add'),))\n"
    paths.bench("dual_residual").write_text(HEAD + text)
    found, source = read(paths, declared)
    assert source == "ops/dual_residual/bench.py"
    assert [row.name for row in found.rows] == ["r"] and found.peers[0].name == "Add"
    assert cost(declared.spec, found.rows[0], found.flops) == 4.0


def test_without_a_file_rows_are_the_largest_cases_of_each_dtype(operator: tuple[Paths, Operator]) -> None:
    paths, declared = operator
    found, source = read(paths, declared)
    assert source == "ops/dual_residual/cases.py" and found == default(declared)
    largest = {"float32": "threads", "float64": "threads", "float16": "plain", "bfloat16": "plain"}
    assert {row.types["T"]: row.name for row in found.rows} == {t: f"{name}_{t}" for t, name in largest.items()}
    empty = Case(name="empty", inputs={"x": Random(shape=(0,)), "y": Random(shape=(0,))})
    none = replace(declared, models=(Model(name="m", types={"T": "float32"}, cases=(empty,)),))
    with pytest.raises(UsageError, match=r"^ops/dual_residual/cases\.py has no case .* in ops/.*/bench\.py$"):
        read(paths, none)


def test_sizes_and_functions_give_the_cost() -> None:
    spec = load_operator(Paths(ROOT), "group_norm").spec
    x, scale = Random(shape=(2, 6, 5)), Random(shape=(6,))
    row = Row(name="r", types={"T": "float32"}, inputs={"x": x, "num_groups": scale, "scale": scale, "bias": scale})
    assert cost(spec, row, "8*N*C*prod(...)") == 8 * 60
    assert cost(spec, row, lambda x, epsilon, **_: x[0] + (epsilon < 1)) == 3.0
    assert cost(spec, row, None) is None


@pytest.mark.torch
@pytest.mark.parametrize("name", ["group_norm", "nms", "dual_residual"])
def test_the_files_of_this_project_have_no_mistake(name: str) -> None:
    found, source = read(Paths(ROOT), load_operator(Paths(ROOT), name))
    assert source == f"ops/{name}/bench.py" and found.peers


def test_doit_does_not_read_it(operator: tuple[Paths, Operator]) -> None:
    """Another tool may have a file of this name, and a mistake in it stops no other command."""
    paths, _ = operator
    paths.bench("dual_residual").write_text("raise SystemExit('read')\n")
    assert load_operator(paths, "dual_residual").name == "dual_residual"
