"""Print how long each part of the tests took, and its slowest files: ``python -m tests.support.durations FOLDER``.

The folder has a JUnit file for each part, such as ops.xml, which tox's commands write to build/durations. All seconds
are those of the clock, as in JUnit; .ci/run prints the CPU seconds of each part.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

_SHOWN = 12


def read(path: Path) -> tuple[float, int, Counter[str]]:
    """Return the seconds of a part by the clock, its tests, and the seconds of each file in its processes."""
    suites = [*ElementTree.parse(path).iter("testsuite")]
    files: Counter[str] = Counter()
    cases = [case for suite in suites for case in suite.iter("testcase")]
    for case in cases:
        files[case.get("classname", "").removeprefix("tests.")] += float(case.get("time", 0))
    return sum(float(suite.get("time", 0)) for suite in suites), len(cases), files


def main(folder: Path) -> None:
    found = {path.stem: read(path) for path in sorted(folder.glob("*.xml"), key=lambda path: path.stat().st_mtime)}
    for name, (seconds, tests, files) in found.items():
        print(f"{name}: {seconds:.0f} s, {tests} tests, {sum(files.values()):.0f} s of their processes")
        for file, spent in files.most_common(_SHOWN):
            print(f"  {spent:7.1f} s  {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
