"""docs/ship.md matches the code: its Python blocks run in an environment that has only the wheel.

tests/docs runs them as well, where opmatrix is installed.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from opmatrix.project.settings import key_of
from opmatrix.wheel.settings import Dist
from tests.support.projects import ROOT
from tests.wheel.shipping import Environment

PAGE = (ROOT / "docs/ship.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_code_runs(fresh: Environment, tmp_path: Path) -> None:
    code = [block for block in blocks("python") if "get_local_kernel" not in block]  # which test_hf_kernel.py runs
    assert len(code) == 3
    (tmp_path / "page.py").write_text(f"import os\nos.chdir({str(tmp_path)!r})\n" + "\n".join(code))
    fresh.check(tmp_path / "page.py")
    assert {path.name for path in tmp_path.glob("*.onnx")} == {"legacy.onnx", "dynamo.onnx"}


def test_every_setting_is_shown() -> None:
    assert set(tomllib.loads("".join(blocks("toml")))["tool"]["opmatrix"]["dist"]) == set(map(key_of, fields(Dist)))


def test_the_line_of_the_program_is_in_the_page() -> None:
    (line,) = blocks("cpp")
    assert line in (ROOT / "tests/wheel/run_model.cc").read_text().replace("  check(ort->Reg", "check(ort->Reg")
