"""Which cells of the matrix have another outcome than at an earlier revision?

    ./run doit -n 2 torch=all ort=all && ./run python benchmarks/outcomes.py benchmarks/outcomes/71b51ad8.json
    ./run python benchmarks/outcomes.py REPORT --store        stores the outcomes of REPORT in place of comparing

The first argument is a report.json, or what --store made of one: the outcome of each cell and of each check, by name.
It is compared with build/report/report.json, or with the second argument. Prints each outcome that changed and each
name that is lost, and the number of new ones. The exit code is 1 if anything changed or is lost.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import ROOT

Outcomes = Mapping[str, str]  # by the name of a cell or a check
FIELDS = {
    "cells": ("op", "lowering", "torch", "exporter", "opset", "ort"),
    "checks": ("op", "check", "lowering", "torch"),
}


def read(path: Path) -> Outcomes:
    """Return the outcomes of a report.json, or of a file that --store wrote."""
    document: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "cells" not in document:
        return {name: outcome for outcome, names in document.items() for name in names}
    return {
        " ".join(str(record[field]) for field in fields): record["outcome"]
        for part, fields in FIELDS.items()
        for record in document[part]
    }


def stored(outcomes: Outcomes) -> str:
    """Return the text of a file with the names by outcome."""
    names = {
        outcome: sorted(n for n, o in outcomes.items() if o == outcome) for outcome in sorted({*outcomes.values()})
    }
    return json.dumps(names, indent=0) + "\n"


def differences(before: Outcomes, after: Outcomes) -> list[str]:
    """Return a line for each name whose outcome changed or that is lost."""
    return [
        f"{name}: {outcome}, now {after.get(name, 'lost')}"
        for name, outcome in before.items()
        if after.get(name) != outcome
    ]


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=ROOT / "build/report/report.json")
    parser.add_argument("--store", action="store_true", help="print what to store of the first report")
    arguments = parser.parse_args(argv)
    before = read(arguments.before)
    if arguments.store:
        print(stored(before), end="")
        return 0
    after = read(arguments.after)
    lines = differences(before, after)
    print(*lines, sep="\n", end="\n" if lines else "")
    new = Counter(after[name] for name in after.keys() - before.keys())
    print(f"{len(before)} outcomes before, {len(after)} now; {len(lines)} changed or lost; new: {dict(new)}")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
