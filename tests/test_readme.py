"""README and docs show what is there: files, counted lines, links, output. docs/test_readme_commands.py executes the
commands.
"""

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


def test_the_declaration_is_shown_as_it_is() -> None:
    assert f"```python\n{(ROOT / 'ops/group_norm/spec.py').read_text()}```" in README


def test_lines_are_counted() -> None:
    rows = re.findall(r"^\| \[`([^`]+)`\]\(\1\) \| (\d+) \|", README, flags=re.MULTILINE)
    assert len(rows) == 5
    for path, lines in rows:
        assert len((ROOT / path).read_text().splitlines()) == int(lines), path


def test_the_matrix_is_counted_as_it_is_planned() -> None:
    """The sentence comes from a report; how many cells there are now is known without one."""
    layout = Paths(ROOT)
    cells = chosen_cells(layout, Choice(torch="all", ort="all"))
    planned = [cell for o in load_operators(layout) for _ in o.spec.lowerings for cell in o.cells(cells)]
    found = re.search(
        r"\*\*([\d,]+) cells: [\d,]+ verified, [\d,]+ unsupported for a stated reason, 0 failed\*\*", README
    )
    assert found and int(found[1].replace(",", "")) == len(planned)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def bare(text: str) -> list[str]:
    """Return lines without seconds and error figures, which differ between machines; every other word does not."""
    figures = re.sub(r"\d+\.\d+s? |\d+\.\d+e[-+]\d+ +\d+%|\d+\.\d+$", "", text, flags=re.MULTILINE)
    return [re.sub(r"\s+", " ", line).strip() for line in figures.splitlines() if line.strip(" ─")]


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_output_shown_is_the_real_one() -> None:
    """The steps that are shown are steps of this project, and the table is that of its report."""
    doit = [sys.executable, "-m", "doit"]
    listed = subprocess.run([*doit, "list", "--all"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    on_demand = ("sanitize", "probe", "link-wheel", "dist")
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
