"""A page of documentation as the steps that a reader takes: pure, from its text.

Pages are CommonMark. HTML comments, which readers do not see, describe a code block:

    <!-- project: seeds -->     the page starts with the operators of ops/; `clone`: in a copy of this repository;
                                `installed`: in an empty folder, with an environment active that has opmatrix's
                                wheel; a folder of the repository: in a copy of it, with this environment active
    <!-- in: clone -->          the console block is left out where the page does not start in `clone`
    <!-- exit: 1 -->            the last command of the console block ends with that code instead of 0
    <!-- write: PATH -->        the block is written to that file of the page's project; `append: PATH` adds to it
    <!-- shown: PATH -->        the block is a run of whole lines of that file of the repository
    <!-- not run: REASON -->    the console or python block is not executed
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

WORDS = ("project", "in", "exit", "write", "append", "shown", "not run")
SETTINGS = ("clone", "installed")  # the two ways to get opmatrix
EXECUTED = ("console", "python")
_LISTS = ("bullet_list_open", "ordered_list_open", "list_item_open")  # a comment may describe a block in a list
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
_WORD = re.compile(r"([a-z]+(?: [a-z]+)?):\s+(.+)", re.DOTALL)


class PageError(Exception):
    """A page breaks the convention, or does something else than it says; the message begins with ``page:line:``."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command for bash, and the lines that it must print; none: any output."""

    line: int
    text: str
    expected: tuple[str, ...] = ()
    code: int = 0
    setting: str = ""  # of SETTINGS; "": any


@dataclass(frozen=True, kw_only=True)
class Python:
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Write:
    line: int
    path: str
    text: str
    append: bool = False


@dataclass(frozen=True, kw_only=True)
class Shown:
    line: int
    path: str
    text: str


@dataclass(frozen=True, kw_only=True)
class NotRun:
    line: int
    reason: str


Step = Command | Python | Write | Shown | NotRun


@dataclass(frozen=True, kw_only=True)
class Page:
    """`path` is relative to the repository; `project` is "", "seeds", of SETTINGS or a folder of the repository."""

    path: str
    project: str = ""
    steps: tuple[Step, ...] = ()

    @property
    def runs(self) -> bool:
        return any(not isinstance(step, NotRun) for step in self.steps)

    @property
    def for_both(self) -> bool:
        """Whether the page starts in a clone and with the installed package: it has commands for one of them."""
        return any(isinstance(step, Command) and step.setting for step in self.steps)

    def opening(self) -> Page:
        """Return the page up to its first `doit new`, to run in the other of SETTINGS."""
        last = next(n for n, s in enumerate(self.steps) if isinstance(s, Command) and s.text.startswith("doit new "))
        other = next(setting for setting in SETTINGS if setting != self.project)
        return replace(self, project=other, steps=self.steps[: last + 1])


@dataclass(frozen=True)
class _Said:
    """A comment: its line, its word (of `WORDS`) and the text after it."""

    line: int
    word: str
    text: str


def parse(path: str, text: str) -> Page:
    """Return the steps of a page; raise PageError with all its mistakes."""
    mistakes: list[str] = []
    project = ""
    steps: list[Step] = []
    waiting: list[_Said] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type == "html_block":
            said = list(_said(token.content, line, mistakes))
            project = next((s.text for s in said if s.word == "project"), project)
            waiting += [s for s in said if s.word != "project"]
        elif token.type == "fence":
            steps += _block(token, line + 1, waiting, mistakes)
            waiting = []
        elif token.type == "inline":
            inline = (_COMMENT.match(c.content) for c in token.children or () if c.type == "html_inline")
            within = [found[1] for found in inline if found and _WORD.match(found[1])]
            mistakes += [
                f"{line}: <!-- {said} --> shares its line with text: give it one of its own" for said in within
            ]
        elif waiting and token.nesting >= 0 and token.type not in _LISTS:
            mistakes += _stray(waiting)
            waiting = []
    mistakes += _stray(waiting)
    if mistakes:
        raise PageError("\n".join(f"{path}:{mistake}" for mistake in mistakes))
    return Page(path=path, project=project, steps=tuple(steps))


def _stray(waiting: Sequence[_Said]) -> list[str]:
    return [f"{s.line}: <!-- {s.word}: {s.text} --> stands before no code block" for s in waiting]


def _said(html: str, line: int, mistakes: list[str]) -> Iterator[_Said]:
    """Yield the comments in a piece of HTML; a comment that begins with no ``word:`` has no meaning here."""
    for comment in _COMMENT.finditer(html):
        at = line + html.count("\n", 0, comment.start())
        if comment[1].partition(":")[0].strip() in WORDS and not _WORD.fullmatch(comment[1]):
            mistakes.append(f"{at}: <!-- {comment[1]} --> says nothing behind its colon")
        elif found := _WORD.fullmatch(comment[1]):
            if found[1] in WORDS:
                yield _Said(at, found[1], found[2].strip())
            else:
                near = difflib.get_close_matches(found[1], WORDS, n=1)
                hint = f"did you mean '{near[0]}'? " if near else ""
                mistakes.append(f"{at}: unknown comment '{found[1]}:'; {hint}allowed: {', '.join(WORDS)}")


def _block(fence: Token, line: int, said: Sequence[_Said], mistakes: list[str]) -> Iterator[Step]:
    """Yield the steps of a code block, whose text begins at `line`, with the comments before it."""
    language = (fence.info.split() or [""])[0]
    by_word = {s.word: s.text for s in said}
    files = [word for word in ("write", "append", "shown") if word in by_word]
    paths = [PurePosixPath(by_word[word]) for word in files]
    outside = [str(path) for path in paths if path.is_absolute() or ".." in path.parts]
    mistakes += [f"{line}: {path!r} is not a path within the project" for path in outside]
    if "exit" in by_word and (language != "console" or not re.fullmatch(r"\d{1,3}", by_word["exit"])):
        mistakes.append(f"{line}: exit: takes a number, before a console block")
        return
    if "in" in by_word and (language != "console" or by_word["in"] not in SETTINGS):
        mistakes.append(f"{line}: in: takes {' or '.join(SETTINGS)}, before a console block")
    if "not run" in by_word and (language not in EXECUTED or len(by_word) > 1):
        mistakes.append(f"{line}: not run: stands alone before a block that would be run: {' or '.join(EXECUTED)}")
    if "not run" in by_word:
        yield NotRun(line=line, reason=by_word["not run"])
    if "shown" in files:
        yield Shown(line=line, path=by_word["shown"], text=fence.content)
    for word in ("write", "append"):
        if word in files:
            yield Write(line=line, path=by_word[word], text=fence.content, append=word == "append")
    if "not run" in by_word or files:
        return
    if language == "python":
        yield Python(line=line, text=fence.content)
    if language == "console":
        code, setting = int(by_word.get("exit", "0")), by_word.get("in", "")
        yield from _commands(fence.content, line, code=code, setting=setting, mistakes=mistakes)


def _commands(text: str, line: int, *, code: int, setting: str, mistakes: list[str]) -> Iterator[Command]:
    """Yield the commands of a console block; only the last one ends with `code`."""
    lines = text.splitlines()
    starts = [n for n, content in enumerate(lines) if content.startswith("$ ")]
    if not starts or any(content.strip() for content in lines[: starts[0]]):
        mistakes.append(f"{line}: a console block begins with a command, after '$ '")
        return
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        last = start + 1
        while last < end and re.match(r">( |$)", lines[last]):
            last += 1
        command = "\n".join(content[2:] for content in lines[start:last])
        expected = "\n".join(lines[last:end]).strip("\n").splitlines()
        ends = code if start == starts[-1] else 0
        yield Command(line=line + start, text=command, expected=tuple(expected), code=ends, setting=setting)
