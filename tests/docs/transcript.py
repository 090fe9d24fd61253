"""Compare the output that a page shows with the output of its command: pure.

``...`` matches anything within a line, and alone on a line any lines. A duration (``0.4s``, ``in 5.2 s``, ``47 ms``)
matches every other. White space at the end of lines, and empty lines at both ends, do not count. Nor do lines about
long work, which a slow machine prints (`opmatrix.basics.step_log`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_DURATION = re.compile(r"(?<![\w.])\d+(?:\.\d+)? ?(?:ms|s|seconds?|min)\b")
_LONG_WORK = re.compile(r"\[\d+/\d+\] \d+s so far |  \d+:\d\d: ")
_MOST = 20  # consecutive lines that a difference shows at each end of an unexpected part


def difference(expected: Sequence[str], found: str) -> str:
    """Return the lines that differ, ``-`` (expected) and ``+`` (found), between equal lines; "" if none do."""
    lines = [line.rstrip() for line in found.strip("\n").splitlines() if not _LONG_WORK.match(line)]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    aligned = list(_aligned([line.rstrip() for line in expected], lines))
    return "\n".join(_shortened(aligned)) if any(mark in "-+" for mark, _ in aligned) else ""


def fits(expected: str, line: str) -> bool:
    """Return whether `line` matches `expected`."""
    return _pattern(expected).fullmatch(_without_durations(line)) is not None


def _without_durations(line: str) -> str:
    return _DURATION.sub("<duration>", line)


def _pattern(expected: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in _without_durations(expected).split("...")))


def _aligned(expected: Sequence[str], found: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield lines with a mark: ``" "`` as expected, ``"."`` swallowed by ``...``, and the fewest ``-`` and ``+``."""
    patterns = [None if line.strip() == "..." else _pattern(line) for line in expected]
    bare = [_without_durations(line) for line in found]
    # cost[i][j]: the least number of lines that differ between expected[i:] and found[j:]
    cost = [[0] * (len(found) + 1) for _ in range(len(expected) + 1)]
    cost[-1] = list(range(len(found), -1, -1))
    for i in range(len(expected) - 1, -1, -1):
        pattern, row, below = patterns[i], cost[i], cost[i + 1]
        row[-1] = below[-1] + (pattern is not None)
        for j in range(len(found) - 1, -1, -1):
            if pattern is None:
                row[j] = min(below[j], row[j + 1])
            elif pattern.fullmatch(bare[j]):
                row[j] = below[j + 1]
            else:
                row[j] = 1 + min(below[j], row[j + 1])
    i = j = 0
    while i < len(expected) or j < len(found):
        pattern = patterns[i] if i < len(expected) else None
        if i == len(expected):
            yield "+", found[j]
            j += 1
        elif pattern is None:
            if cost[i][j] == cost[i + 1][j]:
                i += 1
            else:
                yield ".", found[j]
                j += 1
        elif j < len(found) and pattern.fullmatch(bare[j]):
            yield " ", found[j]
            i, j = i + 1, j + 1
        elif j == len(found) or cost[i + 1][j] <= cost[i][j + 1]:
            yield "-", expected[i]
            i += 1
        else:
            yield "+", found[j]
            j += 1


def _shortened(aligned: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the marked lines, without those that an ellipsis swallowed and without the middle of long runs."""
    start = 0
    while start < len(aligned):
        mark = aligned[start][0]
        end = start
        while end < len(aligned) and aligned[end][0] == mark:
            end += 1
        run = [f"{mark} {line}".rstrip() for _, line in aligned[start:end]]
        if mark == ".":
            yield "  ..."
        elif len(run) > 2 * _MOST:
            yield from run[:_MOST]
            yield f"{mark} ... {len(run) - 2 * _MOST} more lines"
            yield from run[-_MOST:]
        else:
            yield from run
        start = end
