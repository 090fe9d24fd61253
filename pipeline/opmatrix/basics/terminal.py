"""Text for a terminal: its encoding, lines that wrap at words, and commands that can be pasted, also where they are
longer."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

# gdb gets the environment's Python, which ./run puts on PATH.
_STAGE = re.compile(r"(?:\./run )?(gdb --args )?\bpython -m opmatrix\b")
_DOIT = re.compile(r"(\bRun: |`)doit\b")
_CONTINUED = " \\"
_ESCAPE = re.compile(r"\x1b\[[\d;]*[mK]")
# What no line break may split: a command, with the word that introduces it, and what is in backticks.
_WHOLE = re.compile(
    r"(?:(?:Replay|Debug|Run|Log): )?(?:\./run )?(?:gdb --args )?\bpython -m opmatrix\b"
    r"(?: (?:'[^']*'|[^\s;,()'])+)*(?: && \S.*)?"
    r"|\b(?:Replay|Debug|Run|Log): \S.*|`[^`]+`|\S+"
)
_COMMAND = re.compile(r"(?:(?:Replay|Debug|Run): |`)?(?:\./run )?(?:gdb --args )?(?:python|doit|pip) ")
# A word of a command, with the value of an option: blanks in quotes divide nothing.
_QUOTED = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+"
_OPTION = re.compile(rf"--?\w{_QUOTED}(?: (?!-|&&){_QUOTED})?|{_QUOTED}|\S+")
# Source lines with their numbers, as compilers show them, and columns: a line break would hide what stands below what.
_FORMATTED = re.compile(
    r"\s*\d* \||\s*\$ |.*\S {3,}\S|.*[\N{BOX DRAWINGS LIGHT HORIZONTAL}\N{BOX DRAWINGS LIGHT VERTICAL}]"
)


def use_utf8() -> None:
    """Replace this process by one in Python's UTF-8 mode, unless its encoding is UTF-8 already.

    In another one, as with LC_ALL=C and PYTHONUTF8=0, Python reads files of a project, prints, and passes paths, also
    in torch and in code of the project. The programs of this package call this before they read a file.
    """
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"  # steps and tools inherit it
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def for_shell(text: str, root: Path = Path()) -> str:
    """Return `text` with its commands as they run in the project's root: with ./run in a checkout of opmatrix. In logs,
    verdicts and records they stay ``python -m opmatrix``, which works in every environment."""
    if not in_checkout(root):
        return text
    return _DOIT.sub(r"\1./run doit", _STAGE.sub(r"./run \1python -m opmatrix", text))


def in_checkout(root: Path) -> bool:
    """Return whether commands in a project's root begin with ./run."""
    return (root / "run").is_file()


def for_stderr(text: str) -> str:
    """Return an error message as it is printed: commands as they run here, and lines as wide as the terminal."""
    return wrapped(for_shell(text), width_of(sys.stderr))


def width_of(stream: IO[str]) -> int:
    """Return the columns of a terminal; 0 for anything else, where no line wraps, and for one that does not know."""
    try:
        return os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0
    except (OSError, ValueError):
        return 0


def wrapped(text: str, width: int) -> str:
    """Return `text` with line breaks between words where a line is longer than `width`; 0 leaves it as it is. A line
    that continues another has its indentation. In a command, a line break follows a backslash, so that the shell takes
    its lines as one."""
    if not width or len(text) <= width:
        return text
    return "\n".join(part for line in text.split("\n") for part in _parts(line, width))


def _parts(line: str, width: int) -> Iterator[str]:
    if _length(line) <= width or _FORMATTED.match(line):
        yield line
        return
    indent = line[: len(line) - len(line.lstrip())]
    part = ""
    for word in _WHOLE.findall(line):
        if part and len(indent) + _length(part) + 1 + _length(word) > width:
            yield indent + part
            part = ""
        if not part and len(indent) + _length(word) > width and _COMMAND.match(word):
            *begin, word = _command(word, width - len(indent))
            yield from (indent + line for line in begin)
        part = f"{part} {word}" if part else word
    yield indent + part


def _command(text: str, width: int) -> Iterator[str]:
    """Yield the lines of a command, each but the last with a backslash at its end."""
    line = ""
    for word in _OPTION.findall(text):
        if line and len(line) + 1 + len(word) > width - len(_CONTINUED):
            yield line + _CONTINUED
            line = "    " + word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _length(text: str) -> int:
    return len(_ESCAPE.sub("", text))


def in_any_cell(text: str) -> str:
    """Return a message without what differs between cells: their names, versions, opsets, counts and values."""
    text = re.sub(r"@(?:torch|node)[\w.+-]+|\b(?:legacy|dynamo)\b", "", text)
    return re.sub(r"\d+(?:\.\d+)*(?:e[+-]?\d+)?", "#", text)
