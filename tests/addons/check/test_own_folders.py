"""`opmatrix check` writes nothing outside its temporary folder, and in a project nothing outside build/."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import parser

from opmatrix.project.settings import FORMAT
from tests.addons.check import test_functions, test_outcomes
from tests.addons.check.outside import check, model
from tests.addons.check.test_hostile_models import HOSTILE, NO_MODELS
from tests.addons.check.test_open_sizes import BAKED_IN, OPEN
from tests.addons.check.test_several_models import CRASH

pytestmark = pytest.mark.ort


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return time and bytes of each file below a folder, and its folders."""
    every = {str(p.relative_to(folder)): p for p in folder.rglob("*")}
    return {name: (p.stat().st_mtime_ns, p.read_bytes()) if p.is_file() else (0, b"") for name, p in every.items()}


TABLES: Mapping[str, Mapping[str, Any]] = {
    "": {
        "crash": CRASH,
        "random": model("y = RandomNormalLike (x)"),
        "text": model("y = Identity (x)", inputs="string[N,4] x", output="string[] y"),
    },
    "baked in ": BAKED_IN,
    "open ": OPEN,
    "hostile ": HOSTILE,
    "no model ": NO_MODELS,
    "functions ": test_functions.OUTCOMES,
    "outcomes ": test_outcomes.OUTCOMES,
}


def write_models(folder: Path) -> list[str]:
    """Write a model of each kind, and return their paths."""
    paths = []
    test_outcomes.write_data(folder / "m")
    for table, rows in TABLES.items():
        for name, row in rows.items():
            made = row[0] if isinstance(row, tuple) else row
            made = parser.parse_model(made) if isinstance(made, str) else made
            paths.append(folder / "m" / (re.sub(r"[^\w-]+", "_", table + name) + ".onnx"))
            paths[-1].write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    (folder / "m/text_output_0.pb").write_bytes(b"")
    return [str(path) for path in paths]


@pytest.mark.parametrize("project", [False, True])
def test_nothing_is_written_elsewhere(project: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, here, models = tmp_path / "home", tmp_path / "here", tmp_path / "models"
    home.mkdir()
    here.mkdir()
    monkeypatch.setenv("HOME", str(home))
    if project:
        (here / "pyproject.toml").write_text(f"[tool.opmatrix]\nformat = {FORMAT}\n", encoding="utf-8")
        (here / "dodo.py").write_text("", encoding="utf-8")
        (here / "ops").mkdir()
    paths = write_models(models)
    before = [content(folder) for folder in (home, here, models)]
    code, output = check(here, *paths)
    assert code == 2 and f"{len(paths)} models: " in output, output
    after = [content(folder) for folder in (home, here, models)]
    own = [name for name in after[1] if name not in before[1]]
    assert {name.partition("/")[0] for name in own if not name.startswith("opmatrix-check-")} <= (
        {"build"} if project else set()
    )
    after[1] = {name: found for name, found in after[1].items() if name in before[1]}
    assert after == before


def test_the_folder_that_a_message_names_stays(tmp_path: Path) -> None:
    onnx.save(CRASH, tmp_path / "m.onnx")
    code, output = check(tmp_path, "m.onnx")
    (folder,) = tmp_path.glob("opmatrix-check-*")
    assert code == 1 and f"Log: {folder}" in output
    assert sorted(p.name for p in folder.iterdir()) == ["build", "dodo.py", "pyproject.toml"]
