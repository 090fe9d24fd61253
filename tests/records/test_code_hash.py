"""The code that the hash of one lowering covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.records.code_hash import _imports, function, of_features

FILE = '''\
"""Two lowerings."""

SIZE = 3


def half(g, x):
    return g.op("Mul", x, SIZE)


def custom(g, x):
    return g.op("my::Op", half(g, x))


def decomposed(g, x):
    return g.op("Add", x, x)  # twice
'''


def fingerprint(folder: Path, text: str, name: str = "custom") -> str:
    path = folder / "lowering.py"
    path.write_text(text)
    return function(path, name, others={"custom", "decomposed"} - {name})


@pytest.mark.parametrize(
    ("old", "new", "touched"),
    [
        pytest.param('"Add"', '"Sub"', {"decomposed"}, id="its_own_body"),
        pytest.param('"my::Op"', '"my::Two"', {"custom"}, id="the_other_body"),
        pytest.param('"Mul"', '"Div"', {"custom", "decomposed"}, id="a_helper"),
        pytest.param("SIZE = 3", "SIZE = 4", {"custom", "decomposed"}, id="a_constant"),
        pytest.param("# twice", "# two times", set(), id="a_comment"),
        pytest.param("\n\n\ndef decomposed", "\n\n\n\n\ndef decomposed", set(), id="an_empty_line"),
        pytest.param("def custom", "import math\n\n\ndef custom", {"custom", "decomposed"}, id="an_import"),
    ],
)
def test_an_edit_changes_the_hashes_of_its_users(tmp_path: Path, old: str, new: str, touched: set[str]) -> None:
    assert old in FILE
    for name in ("custom", "decomposed"):
        changed = fingerprint(tmp_path, FILE, name) != fingerprint(tmp_path, FILE.replace(old, new), name)
        assert changed == (name in touched)


def test_a_lowering_that_the_other_calls_belongs_to_it(tmp_path: Path) -> None:
    calling = FILE.replace('g.op("my::Op", half(g, x))', "decomposed(g, x)")
    assert fingerprint(tmp_path, calling) != fingerprint(tmp_path, calling.replace('"Add"', '"Sub"'))


@pytest.mark.parametrize(
    "binding", ["custom = half", "from other import custom", "from other import *", "class custom: ..."]
)
def test_a_lowering_may_be_assigned_in_any_way(tmp_path: Path, binding: str) -> None:
    without = FILE.replace("def custom", "def third")
    assert fingerprint(tmp_path, without) == ""
    assert fingerprint(tmp_path, f"{without}\n{binding}\n") != ""


def test_a_file_that_is_no_python_is_hashed_as_text(tmp_path: Path) -> None:
    assert fingerprint(tmp_path, "def (") != fingerprint(tmp_path, "def ((") != ""


def test_modules_in_parentheses_over_several_lines_are_found(tmp_path: Path) -> None:
    (tmp_path / "stage.py").write_text("from opmatrix.data import (  # two modules\n    arrays,\n    truth as t,\n)\n")
    assert {"opmatrix.data", "opmatrix.data.arrays", "opmatrix.data.truth"} <= {*_imports(tmp_path / "stage.py")}


def test_the_code_of_features_that_no_import_names_is_found() -> None:
    found = {path.as_posix().partition("/opmatrix/")[2] for path in of_features("mutation", "bench", "signed results")}
    assert {f"addons/{name}.py" for name in ("mutate/scores", "bench/times", "team/signed_results")} <= found
    assert "basics/files.py" in found, "with what they import"
    assert of_features("nothing") == ()
