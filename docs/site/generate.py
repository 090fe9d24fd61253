"""Write the generated pages of docs/reference/: `./run python -m docs.site.generate`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from docs.site import commands, declaration, dtypes, gates, kernel_headers, operators, report_schema

ROOT = Path(__file__).parents[2]
COMMAND = "./run python -m docs.site.generate"


def pages(root: Path) -> Mapping[str, str]:
    """Return the text of each page, by its name; each names its generator for readers who want to edit it."""
    include = root / "native/include"
    headers = {str(path.relative_to(include)): path.read_text() for path in sorted(include.rglob("*.h"))}
    made = {
        "declaration.md": declaration.render((root / "pipeline/opmatrix/spec.py").read_text()),
        "bench.md": declaration.render((root / declaration.BENCH.file).read_text(), declaration.BENCH),
        "commands.md": commands.render(root),
        "dtypes.md": dtypes.render(),
        "gates.md": gates.render(root / "tests"),
        "failure-modes.md": gates.symptoms((root / "docs/site/failure-modes.txt").read_text(), root / "tests"),
        "test-operators.md": operators.render(root / "tests"),
        "kernel-headers.md": kernel_headers.render(headers),
        "report-schema.md": report_schema.render(
            json.loads((root / "pipeline/opmatrix/report/report.schema.json").read_text())
        ),
    }
    return {name: f"<!-- Made by `{COMMAND}`. -->\n\n{text}" for name, text in made.items()}


def main() -> None:
    """Write the pages that differ."""
    for name, text in pages(ROOT).items():
        path = ROOT / "docs/reference" / name
        path.parent.mkdir(exist_ok=True)
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
