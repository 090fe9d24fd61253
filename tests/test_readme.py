"""README and docs match the project: files, counted lines, links, output. test_readme_commands.py runs commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.declaration.load import load_operators
from opmatrix.matrix.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("ops/*/README.md")),
]


def test_the_declaration_in_readme_is_the_file() -> None:
    assert f"```python\n{(ROOT / 'ops/group_norm/spec.py').read_text()}```" in README


def test_lines_are_counted() -> None:
    rows = re.findall(r"^\| \[`([^`]+)`\]\(\1\) \| (\d+) \|", README, flags=re.MULTILINE)
    assert len(rows) == 5
    for path, lines in rows:
        assert len((ROOT / path).read_text().splitlines()) == int(lines), path


def test_the_number_of_planned_cells_is_current() -> None:
    """The sentence comes from a report; the number of planned cells needs none."""
    layout = Paths(ROOT)
    cells = chosen_cells(layout, Choice(torch="all", ort="all"))
    planned = [cell for o in load_operators(layout) for _ in o.spec.lowerings for cell in o.cells(cells)]
    found = re.search(
        r"\*\*([\d,]+) cells: [\d,]+ verified, [\d,]+ unsupported for a stated reason, 0 failed\*\*", README
    )
    assert found and int(found[1].replace(",", "")) == len(planned)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def bare(text: str) -> list[str]:
    """Return lines without seconds and errors, which differ between machines; all other words must match."""
    figures = re.sub(r"\d+\.\d+s? |\d+\.\d+e[-+]\d+ +\d+%|\d+\.\d+$", "", text, flags=re.MULTILINE)
    return [re.sub(r"\s+", " ", line).strip() for line in figures.splitlines() if line.strip(" ─")]


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_output_in_readme_is_real() -> None:
    """The steps in it are steps of this project, and the table is that of its report."""
    doit = [sys.executable, "-m", "doit"]
    listed = subprocess.run([*doit, "list", "--all"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    on_demand = ("sanitize", "probe", "compat", "link-wheel", "dist")
    names = {line.split()[0] for line in listed.splitlines() if not line.startswith(on_demand)}
    subprocess.run(doit, cwd=ROOT, capture_output=True, text=True)
    report = subprocess.run([sys.executable, "-m", "opmatrix", "report"], cwd=ROOT, capture_output=True, text=True)
    steps, _, table = (
        README.partition("the environment is ready")[2].partition("\n")[2].partition("```")[0].partition("\n\n")
    )
    shown = [line.split() for line in steps.splitlines() if line.startswith("[")]
    groups = {name.partition(":")[0] for name in names if ":" in name}
    assert shown
    assert {count for count, _, _ in shown} <= {f"[{n}/{len(names - groups)}]" for n in range(len(names))}
    assert {name for _, _, name in shown} <= names
    wanted = [line for line in bare(table) if line != "..." and " steps in " not in line]
    assert [line for line in wanted if line not in bare(report.stdout)] == []
    assert len(wanted) >= 4
