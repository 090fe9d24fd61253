"""docs/reference/ is up to date with the commands, settings and declarations."""

from __future__ import annotations

import re

import pytest

from docs.site import commands, declaration, report_schema
from docs.site.generate import COMMAND, pages
from opmatrix.wheel.settings import FIELDS
from tests.docs.pages import ROOT

MADE = pages(ROOT)


@pytest.mark.parametrize("name", MADE)
def test_a_page_is_current(name: str) -> None:
    path = ROOT / "docs/reference" / name
    assert path.read_text() == MADE[name], f"docs/reference/{name} is out of date; write it anew: {COMMAND}"


def test_every_page_of_the_folder_is_generated() -> None:
    """Except operators.md, which is not committed: `python -m opmatrix operator-pages` makes it."""
    assert {path.name for path in (ROOT / "docs/reference").iterdir()} - {"operators.md"} == {*MADE}


def test_a_field_without_a_description_is_found() -> None:
    source = (ROOT / "pipeline/opmatrix/spec.py").read_text()
    line = '    """What it does, in one sentence."""\n'
    assert line in source
    with pytest.raises(ValueError, match=r"pipeline/opmatrix/spec\.py:\d+: say below 'summary' what it means"):
        declaration.render(source.replace(line, ""))


def test_a_key_without_a_description_is_found() -> None:
    schema = {"description": "x", "properties": {"key": {"type": "string"}}, "$defs": {}}
    with pytest.raises(ValueError, match=r"report\.schema\.json: \.key has no description"):
        report_schema.render(schema)


def test_every_variable_is_explained() -> None:
    """Except variables that one step sets for another."""
    files = [*(ROOT / "pipeline").rglob("*.py"), ROOT / "run", ROOT / "toxfile.py", ROOT / "docs/conf.py"]
    own = {"OPMATRIX_JOBS", "OPMATRIX_LOGGED", "OPMATRIX_SAY_DONE", "OPMATRIX_EACH_CPU"}  # the last is a macro of C++
    used = set().union(*(commands.variables_in(path.read_text()) for path in files)) - own
    assert len(used) >= 4
    assert used <= commands.variables_in(MADE["commands.md"])


def test_every_table_of_settings_is_explained() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "pipeline").rglob("*.py"))
    used = set(re.findall(r"""settings\(paths, "(\w+)"\)""", code))
    assert {"tool.opmatrix"} | {f"tool.opmatrix.{table}" for table in used} == set(commands.SETTINGS)
    assert {*commands.SETTINGS["tool.opmatrix.dist"]} == {*FIELDS}
