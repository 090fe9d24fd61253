"""Which files are pages of the documentation.

tests/test_readme.py and test_readme_commands.py test README.md. The claims of benchmarks/README.md are measured again,
not compared.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
_ROOMS = ("docs", "ops", "examples")
_MADE = {"build", "node_modules", "__pycache__"}


def pages(root: Path) -> list[str]:
    """Return the paths of all pages below `root`, relative to it, without build outputs and installed packages."""
    found = [path.relative_to(root) for room in _ROOMS for path in sorted((root / room).rglob("*.md"))]
    kept = [p for p in found if not any(part in _MADE or part.startswith(".") for part in p.parts)]
    return [str(p) for p in (*map(Path, ("CONTRIBUTING.md", "SECURITY.md")), *kept) if (root / p).is_file()]


PAGES = pages(ROOT)
