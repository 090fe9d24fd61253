"""Placeholders of new operators that are still to be filled in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.declaration.placeholders import reminder, require_filled
from opmatrix.errors import DistError
from opmatrix.project.paths import Paths
from opmatrix.stages import link_wheel
from opmatrix.wheel.settings import Dist
from tests.support.projects import write_files


@pytest.fixture
def layout(tmp_path: Path) -> Paths:
    files = {
        "ops/a/spec.py": '"""FILL IN: what a is."""\n\nx = 1  # FILL IN\n',
        "ops/a/README.md": "FILL IN\n",
        "native/a/kernel.h": "// whole\n",
        "ops/b/spec.py": '"""Fill in the form."""\n',
        "ops/b/README.md": "FILL IN\n",
    }
    write_files(tmp_path, files)
    return Paths(tmp_path)


def test_the_message_names_the_first_placeholder(layout: Paths) -> None:
    assert reminder(layout, "a") == (
        "a: FILL IN stands in 3 lines still, the first is ops/a/README.md:1; until then it does not ship"
    )
    layout.kernel("a").write_text("// FILL IN\n")
    assert reminder(layout, "a").endswith("; until then it is a placeholder")
    assert reminder(layout, "b") == (
        "b: FILL IN stands in 1 line still, the first is ops/b/README.md:1; its README is unfinished, nothing else"
    )
    assert reminder(layout, "none") == ""


def test_code_with_a_placeholder_is_not_shipped(layout: Paths) -> None:
    require_filled(layout, ["b"])
    with pytest.raises(DistError) as raised:
        require_filled(layout, ["b", "a"])
    assert str(raised.value).splitlines()[:2] == [
        "a wheel holds no placeholders: FILL IN stands in lines of",
        "  ops/a/spec.py: 1, 3",
    ]
    assert "operators = [...]" in str(raised.value)


def test_the_link_stage_refuses_placeholders(layout: Paths) -> None:
    dist = Dist(name="my_ops", version="1", operators=("a",), summary="", license=None, licenses=(), third_party={})
    with pytest.raises(DistError, match="a wheel holds no placeholders"):
        link_wheel.run(layout, dist, [SimpleNamespace(name="a")])  # type: ignore[list-item]  # only its name is read
