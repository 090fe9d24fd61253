"""Shorten what a compiler or linker printed through ninja: the first error, in its own lines and colours.

A compilation stops at its first error. GCC and clang yet print up to 200 lines for it: chains of "required from", and
candidates in the standard library. The log contains all of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path

from opmatrix.basics.errors import Cause, many, without_colours
from opmatrix.project.paths import Paths

MOST_NAMED = 2  # undefined symbols, in addition to the first
_SNIPPET = 4  # lines below an error: the source, the caret, and what the compiler suggests
_OF_TORCH = ("at::", "c10::", "torch::", "caffe2::")
_WIDEST = 240  # characters of a line: the types of a template may take thousands

_MESSAGE = re.compile(r": (?:(?:fatal )?error|warning|note): ")
_ERROR = re.compile(r": (?:fatal )?error: ")
_INCLUDED = (":", ",")  # ends a line that begins with "In file included from"
_PLACED = re.compile(
    r"(?:In file included from |\s+from )?(?P<path>[^\s:][^:]*):(?P<line>\d+)(?::(?P<column>\d+))?"
    rf"(?P<text>{_MESSAGE.pattern}.*|:   (?:recursively |  )?(?:required|in .constexpr. expansion)\b.*|[,:]$)"
)
_REQUESTED = re.compile(r": note: in instantiation of .* requested here")  # clang
_NEITHER = re.compile(
    r"[^\s:][^:]*: (?:In|At) .*:$|cc1plus: (?:all|some) warnings|compilation terminated"
    r"|fatal error: too many errors emitted|\d+ (?:errors?|warnings?)\b.*generated\.$"
)
_LONG_PATH = re.compile(r"/\S*/\.\./\S*(?=:\d+:)")  # clang: /usr/bin/../lib/gcc/x86_64-linux-gnu/12/../../...
# GNU ld and gold, then lld.
_UNDEFINED = re.compile(r"undefined (?:reference to [`'\u2018]|symbol: )(?P<symbol>.*?)['\u2019]?$")


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A line of the compiler about a place, and those below it: lines of the source and carets."""

    path: Path
    line: int
    column: int | None
    text: str = ""  # what follows the place
    lines: Sequence[str] = ()  # with colours

    def is_written(self, paths: Paths) -> bool:
        """Return whether the user wrote the file."""
        others = (paths.build, paths.include, paths.binding)
        return self.path.is_relative_to(paths.root) and not any(map(self.path.is_relative_to, others))


@dataclass(frozen=True, kw_only=True)
class _Error:
    """An error, with the places that the compiler names before it, which lead to it, and after it, mostly notes."""

    place: _Placed
    before: Sequence[_Placed]
    after: Sequence[_Placed]

    def origin(self, paths: Paths) -> _Placed | None:
        """Return the nearest place in a file of the user that leads to the error; None if only generated code does."""
        included = [one for one in self.before if one.text in _INCLUDED]
        required = [one for one in self.before if one.text not in _INCLUDED]
        requested = [one for one in self.after if _REQUESTED.match(one.text)]
        leading = (self.place, *required, *requested, *included)
        return next((one for one in leading if one.is_written(paths)), None)


def full(output: str) -> str:
    """Return what the compiler printed, without the commands that ninja repeats, its last line, and colours."""
    lines = without_colours(output).splitlines()
    kept = [
        line
        for previous, line in zip(["", *lines], lines, strict=False)
        if not line.startswith(("FAILED: ", "ninja: ")) and not previous.startswith("FAILED: ")
    ]
    return "\n".join(kept) or without_colours(output).strip()


def shortened(output: str, paths: Paths, name: str) -> tuple[str, Cause | None]:
    """Return the first error of an operator's compilation, with colours, and the line of the project that leads to it
    if it is elsewhere, such as in the standard library. Paths in the project are relative to it."""
    blocks = [lines for _, lines in sorted(_blocks(output), key=lambda block: block[0])]
    errors = [error for lines in blocks if (error := _first_error(lines))]
    cause = None
    if errors:
        error = min(errors, key=lambda one: one.origin(paths) is None)
        lines = list(_shown(error, paths, name))
        if (origin := error.origin(paths)) and origin is not error.place:
            cause = Cause(file=origin.path.relative_to(paths.root).as_posix(), line=origin.line)
    else:
        lines = list(_undefined([line for block in blocks for line in block], paths, name))
    if not lines:
        return full(output), None
    return "\n".join(_cut(line.replace(f"{paths.root}/", "")) for line in lines), cause


def _cut(line: str) -> str:
    line = _LONG_PATH.sub(lambda match: os.path.normpath(match[0]), line)
    plain = without_colours(line)
    return line if len(plain) <= _WIDEST else f"{plain[:_WIDEST]} ..."


def _blocks(output: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each failed output of ninja, with what its command printed."""
    lines = output.splitlines()
    starts = [n for n, line in enumerate(lines) if without_colours(line).startswith("FAILED: ")]
    for start, end in pairwise([*starts, len(lines)]):
        yield lines[start], [line for line in lines[start + 2 : end] if not line.startswith("ninja: ")]


def _first_error(lines: Sequence[str]) -> _Error | None:
    found: list[_Placed] = []
    below: list[str] = []
    for line in lines:
        plain = without_colours(line)
        if match := _PLACED.match(plain):
            below, column = [line], match["column"]
            place = _Placed(
                path=Path(match["path"]),
                line=int(match["line"]),
                column=int(column) if column else None,
                text=match["text"],
                lines=below,
            )
            found.append(place)
        elif _NEITHER.match(plain):
            below = []
        else:
            below.append(line)
    if (at := next((n for n, one in enumerate(found) if _ERROR.match(one.text)), None)) is None:
        return None
    before = takewhile(lambda one: not _MESSAGE.match(one.text), reversed(found[:at]))
    return _Error(place=found[at], before=[*before][::-1], after=found[at + 1 :])


def _shown(error: _Error, paths: Paths, name: str) -> Iterator[str]:
    """Yield the lines of an error: how the user's file leads to it, itself, and the first note in the user's file."""
    place, origin = error.place, error.origin(paths)
    if origin and origin is not place:
        yield origin.lines[0]
        yield from _source(origin)
    yield from place.lines[: 1 + _SNIPPET]
    notes = [one for one in error.after if _MESSAGE.match(one.text) and not _REQUESTED.match(one.text)]
    own = (n for n in notes if n.is_written(paths) and not n.text.startswith(": note: each undeclared identifier"))
    if note := next(own, None):
        yield from note.lines[: 1 + _SNIPPET // 2]
    yield from [n.lines[0] for n in notes if n.text.startswith(": note:   candidate expects")][:1]
    if not origin and place.path.is_relative_to(paths.generated(name)):
        yield (
            f"{place.path.name} is generated: {name}() in native/{name}/ must take the inputs, attributes and "
            f"outputs of ops/{name}/spec.py, in this order"
        )


def _source(place: _Placed) -> Iterator[str]:
    """Yield the line of a file as compilers show it, with a caret."""
    try:
        lines = place.path.read_text(errors="replace", encoding="utf-8").splitlines()
        text = lines[place.line - 1].replace("\t", " ")
    except (OSError, IndexError):
        return
    yield f"{place.line:5} | {text}"
    if place.column:
        yield f"      | {' ' * (place.column - 1)}^"


def _undefined(lines: Sequence[str], paths: Paths, name: str) -> Iterator[str]:
    """Yield the messages of a linker about undefined symbols, and where the user's files use the first one."""
    found = dict.fromkeys(m["symbol"] for m in map(_UNDEFINED.search, map(without_colours, lines)) if m)
    if not found:
        yield from [line for line in lines if "error" in line or "multiple definition" in line][: 2 + _SNIPPET]
        return
    first, *others = found
    place = _last_use(first, paths, name)
    yield f"{f'{place.path}:{place.line}:{place.column}: ' if place else ''}error: undefined reference to '{first}'"
    if place:
        yield from _source(place)
    yield from (f"error: undefined reference to '{symbol}'" for symbol in others[:MOST_NAMED])
    if len(others) > MOST_NAMED:
        yield f"not shown: {many(len(others) - MOST_NAMED, 'undefined reference')}"
    if first.startswith(_OF_TORCH):
        yield "the torch that the library is compiled for does not have it"
    else:
        yield f"define it in native/{name}/, inline or as a template: no other library is linked"


def _last_use(symbol: str, paths: Paths, name: str) -> _Placed | None:
    """Return where the operator's files name a function last: a declaration comes before."""
    function = re.split(r"[(<\[]", symbol)[0].rpartition("::")[2]
    word = re.compile(rf"\b{re.escape(function)}\b")
    place = None
    for path in sorted(p for p in paths.native_sources(name) if p.is_relative_to(paths.kernel(name).parent)):
        for number, line in enumerate(path.read_text(errors="replace", encoding="utf-8").splitlines(), 1):
            for match in word.finditer(line.partition("//")[0]):
                place = _Placed(path=path, line=number, column=match.start() + 1)
    return place
