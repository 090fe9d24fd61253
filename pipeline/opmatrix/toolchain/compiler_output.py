"""Shorten what a compiler or linker printed through ninja: the first error, in its own lines and colours.

GCC and clang print 20 to 600 lines for one mistake: an error for each dtype of a template, errors that follow from the
first, chains of "required from", and candidates in the standard library. The log contains all of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from opmatrix.basics.errors import Cause, many, without_colours
from opmatrix.project.paths import Paths

MOST_NAMED = 2  # errors at other lines of which the first line is shown, and undefined symbols
_SNIPPET = 4  # lines below an error: the source, the caret, and what the compiler suggests
_LONG_TYPES = 40  # characters of the types of a template that are not shown
_OF_TORCH = ("at::", "c10::", "torch::", "caffe2::")
_WIDEST = 240  # characters of a line: the types of a template may take thousands

_PLACE = r"(?P<path>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)?"
_HEAD = re.compile(rf"{_PLACE} (?P<kind>(?:fatal )?error|warning|note): (?P<text>.*)")
_CHAIN = re.compile(rf"{_PLACE}   (?:recursively |  )?(?:required|in .constexpr. expansion)\b.*")
_INCLUDED = re.compile(r"(?:In file included from|\s+from) (?P<path>[^:]+):(?P<line>\d+)(?::(?P<column>\d+))?[,:]$")
_WITHIN = re.compile(r"[^\s:][^:]*: (?:In|At) .*:$")
_LONG_PATH = re.compile(r"/\S*/\.\./\S*(?=:\d+:)")  # clang: /usr/bin/../lib/gcc/x86_64-linux-gnu/12/../../...
_END = re.compile(r"cc1plus: (?:all|some) warnings|compilation terminated\.|\d+ (?:errors?|warnings?)\b.*generated\.$")
_WITH = re.compile(r"\[with (?P<types>.*)\](?:.:)?$")  # GCC
_ALIAS = re.compile(r"\w+_t = |std::")
_REQUESTED = re.compile(r"in instantiation of .*?'(?P<types>[^']*)' requested here")  # clang
# GNU ld and gold, then lld.
_UNDEFINED = re.compile(r"undefined (?:reference to [`'\u2018]|symbol: )(?P<symbol>.*?)['\u2019]?$")


@dataclass(frozen=True, kw_only=True)
class Location:
    path: Path
    line: int
    column: int | None
    shown: tuple[str, ...] = ()  # the compiler's lines about it, with colours


@dataclass(kw_only=True)
class _Message:
    """An error, a warning or a note, with the places that lead to it."""

    kind: str
    text: str
    place: Location
    lines: list[str]
    included: list[Location]
    required: list[Location]
    types: str = ""  # with which a template is instantiated
    notes: list[_Message] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Which files the user wrote: those in `root` that are not in `others`, such as the build folder."""

    root: Path
    others: tuple[Path, ...]

    def has(self, path: Path) -> bool:
        return path.is_relative_to(self.root) and not any(path.is_relative_to(folder) for folder in self.others)


def full(output: str) -> str:
    """Return what the compiler printed, without the commands that ninja repeats, its last line, and colours."""
    lines = without_colours(output).splitlines()
    kept = [
        line
        for previous, line in zip(["", *lines], lines, strict=False)
        if not line.startswith(("FAILED: ", "ninja: ")) and not previous.startswith("FAILED: ")
    ]
    return "\n".join(kept) or without_colours(output).strip()


def shortened(output: str, paths: Paths, name: str) -> str:
    """Return the first error of an operator's compilation, with colours. Paths in the project are relative to it."""
    sources = Sources(root=paths.root, others=(paths.build, paths.include, paths.binding))
    blocks = sorted(_blocks(output), key=lambda block: block[0])
    errors = [sorted(_parsed(lines), key=lambda one: "[-Werror" in one.text) for _, lines in blocks]  # warnings last
    if any(errors):
        first_ours = sorted(filter(None, errors), key=lambda of: _origin(of[0], sources) is None)
        lines = list(_errors([one for of in first_ours for one in of], sources, paths.generated(name), name))
    else:
        lines = list(_undefined([line for _, of in blocks for line in of], paths, name))
    if not lines:
        return full(output)
    return "\n".join(_cut(line.replace(f"{paths.root}/", "")) for line in lines)


def cause(first: str) -> Cause | None:
    """Return which line of the project leads to an error elsewhere, such as in the standard library, if `shortened`
    begins with one; None where the error itself is in the project."""
    leading = re.match(r"(?P<file>[^:\n]+):(?P<line>\d+):\d+: +required from", without_colours(first))
    return Cause(file=leading["file"], line=int(leading["line"])) if leading else None


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


def _parsed(lines: Sequence[str]) -> list[_Message]:
    """Return the errors of one compilation in their order, with their notes."""
    found: list[_Message] = []
    included: list[Location] = []
    required: list[Location] = []
    types = ""
    below: list[str] = []  # where lines of the source and carets belong
    for line in lines:
        plain = without_colours(line)
        if head := _HEAD.match(plain):
            below = [line]
            message = _Message(
                kind=head["kind"],
                text=head["text"],
                place=_place(head),
                lines=below,
                included=included,
                required=required,
                types=types,
            )
            if message.kind != "note":
                found.append(message)
            elif found:
                found[-1].notes.append(message)
            included, required, types = [], [], ""
        elif _WITHIN.match(plain):
            types = types or _types(plain)
            below = []
        elif match := _CHAIN.match(plain):
            below = []
            required.append(_place(match, line))
        elif match := _INCLUDED.match(plain):
            below = []
            included.append(_place(match, line))
        elif _END.match(plain):
            below = []
        else:
            below.append(line)
    return [one for one in found if one.kind.endswith("error")]


def _place(match: re.Match[str], *shown: str) -> Location:
    column = match["column"]
    return Location(
        path=Path(match["path"]), line=int(match["line"]), column=int(column) if column else None, shown=shown
    )


def _types(line: str) -> str:
    """Return ``T = float`` of ``[with T = float; int64_t = long int]``."""
    match = _WITH.search(line)
    given = [part for part in match["types"].split("; ") if not _ALIAS.match(part)] if match else []
    return "; ".join(given).replace("opmatrix::", "")


def _instantiation(message: _Message) -> str:
    """Return with which types the template is instantiated that contains an error."""
    asked = (_REQUESTED.match(note.text) for note in message.notes)
    return message.types or next((match["types"].replace("opmatrix::", "") for match in asked if match), "")


def _origin(message: _Message, sources: Sources) -> Location | None:
    """Return the nearest place in a file of the user that leads to an error; None if only generated code does."""
    asked = [note.place for note in message.notes if _REQUESTED.match(note.text)]
    leading = (message.place, *message.required, *asked, *message.included)
    return next((place for place in leading if sources.has(place.path)), None)


def _errors(errors: Sequence[_Message], sources: Sources, generated: Path, name: str) -> Iterator[str]:
    groups: dict[object, list[_Message]] = {}
    for one in errors:
        groups.setdefault(_identity(one, sources), []).append(one)
    first, *repeats = next(iter(groups.values()))
    yield from _shown(first, sources)
    if first.place.path.is_relative_to(generated) and not _origin(first, sources):
        yield (
            f"{first.place.path.name} is generated: {name}() in native/{name}/ must take the inputs, attributes and "
            f"outputs of ops/{name}/spec.py, in this order"
        )
    others = [group[0] for group in list(groups.values())[1:]]
    named = [one for one in others if sources.has(one.place.path)][:MOST_NAMED]
    yield from (one.lines[0] for one in named)
    yield from _folded(errors, first, repeats, named)


def _identity(error: _Message, sources: Sources) -> object:
    """Return what errors have in common that one mistake causes for several dtypes."""
    if place := _origin(error, sources):
        return place.path, place.line, place.column
    source = "".join(without_colours(line).rpartition("|")[2] for line in error.lines[1:2])
    return error.place.path, source or error.place.line  # generated code repeats a line for each dtype


def _shown(error: _Message, sources: Sources) -> Iterator[str]:
    """Yield the lines of one error: how the user's file leads to it, itself, and the first note in the user's file."""
    origin = _origin(error, sources)
    if origin and origin is not error.place:
        yield from origin.shown or [f"{origin.path}:{origin.line}:{origin.column}: required from here"]
        yield from _source(origin)
    yield from error.lines[: 1 + _SNIPPET]
    notes = (n for n in error.notes if sources.has(n.place.path) and not _REQUESTED.match(n.text))
    if note := next((n for n in notes if not n.text.startswith("each undeclared identifier")), None):
        yield from note.lines[: 1 + _SNIPPET // 2]
    yield from [n.lines[0] for n in error.notes if n.text.startswith("  candidate expects")][:1]


def _source(place: Location) -> Iterator[str]:
    """Yield the line of a file as compilers show it, with a caret."""
    try:
        lines = place.path.read_text(errors="replace", encoding="utf-8").splitlines()
        text = lines[place.line - 1].replace("\t", " ")
    except (OSError, IndexError):
        return
    yield f"{place.line:5} | {text}"
    if place.column:
        yield f"      | {' ' * (place.column - 1)}^"


def _folded(
    errors: Sequence[_Message], first: _Message, repeats: Sequence[_Message], named: Sequence[_Message]
) -> Iterator[str]:
    """Yield one line that counts the errors that are not shown."""
    parts = []
    if not repeats and 0 < len(_instantiation(first)) <= _LONG_TYPES:
        yield f"only in the instantiation with {_instantiation(first)}"
    if repeats:
        known = dict.fromkeys(filter(None, map(_instantiation, repeats)))
        known.pop(_instantiation(first), None)
        if any(len(one) > _LONG_TYPES for one in known):
            known.clear()
        parts.append(f"{many(len(repeats), 'repeat')} of the first" + (f" ({', '.join(known)})" if known else ""))
    if rest := len(errors) - 1 - len(repeats) - len(named):
        parts.append(f"{many(rest, 'error')} that may follow from {'these' if named else 'this one'}")
    if parts:
        yield f"not shown: {'; '.join(parts)}"


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


def _last_use(symbol: str, paths: Paths, name: str) -> Location | None:
    """Return where the operator's files name a function last: a declaration comes before."""
    function = re.split(r"[(<\[]", symbol)[0].rpartition("::")[2]
    word = re.compile(rf"\b{re.escape(function)}\b")
    place = None
    for path in sorted(p for p in paths.native_sources(name) if p.is_relative_to(paths.kernel(name).parent)):
        for number, line in enumerate(path.read_text(errors="replace", encoding="utf-8").splitlines(), 1):
            for match in word.finditer(line.partition("//")[0]):
                place = Location(path=path, line=number, column=match.start() + 1)
    return place
