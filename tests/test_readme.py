"""README and docs match the project: code, counted lines, links, output. test_readme_commands.py runs commands."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.declaration.load import load_operators
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.project.settings import chosen_cells

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
OVERVIEW = (ROOT / "docs/overview.md").read_text()
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted(ROOT.glob("ops/*/README.md")),
]


def test_the_operator_in_readme_is_that_of_the_quick_start() -> None:
    """Whose page the tests follow: it is written, verified and used."""
    page = (ROOT / "docs/quick-start.md").read_text()
    blocks = re.findall(r"^```(?:cpp|python)\n(.+?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert block in page
    assert 'same_as="x"' in page and 'same_as="x"' in README


def test_lines_are_counted() -> None:
    rows = re.findall(r"^\| \[`([^`]+)`\]\(\.\./\1\) \| (\d+) \|", OVERVIEW, flags=re.MULTILINE)
    assert len(rows) == 5
    for path, lines in rows:
        assert len((ROOT / path).read_text().splitlines()) == int(lines), path


def test_the_number_of_planned_cells_is_current() -> None:
    """The sentence comes from a report; the number of planned cells needs none."""
    paths = Paths(ROOT)
    cells = chosen_cells(paths, Choice(torch="all", ort="all"))
    planned = [cell for o in load_operators(paths) for _ in o.spec.lowerings for cell in o.cells(cells)]
    found = re.search(
        r"\*\*([\d,]+) cells: [\d,]+ verified, [\d,]+ unsupported for a stated reason, 0 failed\*\*", README
    )
    assert found and int(found[1].replace(",", "")) == len(planned)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
def test_the_output_in_readme_is_real() -> None:
    """The number of steps is that of this project, and the counts are those of its report."""
    doit = [sys.executable, "-m", "doit"]
    listed = subprocess.run([*doit, "list", "--all"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    on_demand = ("sanitize", "probe", "compat", "link-wheel", "dist")
    names = {line.split()[0] for line in listed.splitlines() if not line.startswith(on_demand)}
    groups = {name.partition(":")[0] for name in names if ":" in name}
    subprocess.run(doit, cwd=ROOT, capture_output=True, text=True)
    report = subprocess.run([sys.executable, "-m", "opmatrix", "report"], cwd=ROOT, capture_output=True, text=True)
    (counts,) = re.findall(r"^\d+ cells: .+$", README, flags=re.MULTILINE)
    assert counts in report.stdout.splitlines()
    assert f"\n{len(names - groups)} steps in " in README
