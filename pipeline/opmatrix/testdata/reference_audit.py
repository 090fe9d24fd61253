"""Refuse what a reference must not open: what this build made, and the runtimes that it judges.

An audit hook of Python sees every import, every library that ctypes opens and every file, however it is spelled. A hook
stays for the life of the process; it looks only at what code of a reference.py does, itself or through others.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from opmatrix.project.paths import Paths

# Modules that a reference must not import, and why.
REFUSED: Mapping[str, str] = {
    "torch": "it runs the kernel under test, and its own operators are compared with the reference",
    "onnxruntime": "it runs the models under test",
}
_EVENTS = frozenset({"import", "ctypes.dlopen", "open"})


class NotIndependentError(Exception):
    """A reference opens what it should judge. Not part of opmatrix.errors: user code may catch it."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What one reference.py opened although it must not: a line each, also where its code caught the exception."""

    path: str  # as in its code objects
    shown: str
    build: Path
    refused: Mapping[str, str] = field(default_factory=lambda: REFUSED)
    found: list[str] = field(default_factory=list)

    def look(self, event: str, args: tuple[Any, ...], line: int) -> None:
        """Raise NotIndependentError if an event is refused; add it to `found`."""
        if why := self._problem(event, args):
            self.found.append(f"{self.shown}:{line}: {why}")
            raise NotIndependentError(why)

    def _problem(self, event: str, args: tuple[Any, ...]) -> str:
        if event == "import":
            name = str(args[0]).partition(".")[0]
            if name not in self.refused:
                return ""
            other = ', or with reference="torch" in spec.py' if name == "torch" else ""
            return f"imports {name}: {self.refused[name]}. {_REMEDY}{other}"
        if not isinstance(args[0], str | bytes | os.PathLike):  # a descriptor, or None for the program itself
            return ""
        path = Path(os.fsdecode(args[0])).resolve()
        if not path.is_relative_to(self.build):
            return ""
        verb = "loads" if event == "ctypes.dlopen" else "opens"
        shown = f"{self.build.name}/{path.relative_to(self.build)}"
        return f"{verb} {shown}, which this build made, so it agrees with any fault. {_REMEDY}"


_REMEDY = "Write the reference in NumPy, from the definition"
_audits: dict[str, Audit] = {}


def watch(paths: Paths, operator: str, *, torch: bool = False) -> Audit:
    """Refuse from now on what the reference of an operator must not open; `torch`: it may import torch."""
    _install()
    path = paths.reference(operator)
    refused = {name: why for name, why in REFUSED.items() if not (torch and name == "torch")}
    made = Audit(path=str(path), shown=str(path.relative_to(paths.root)), build=paths.build.resolve(), refused=refused)
    _audits[made.path] = made
    return made


def refuse(audit: Audit, why: str) -> NoReturn:
    """Raise NotIndependentError for what the code of a reference does now; add it to `found`, with its line."""
    frame: FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename != audit.path:
        frame = frame.f_back
    audit.found.append(f"{audit.shown}{f':{frame.f_lineno}' if frame else ''}: {why}")
    raise NotIndependentError(why)


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, args: tuple[Any, ...]) -> None:
    if not _EVENTS or event not in _EVENTS:  # Python clears the variables of modules as it ends
        return
    frame = sys._getframe(1)
    while frame:
        if audit := _audits.get(frame.f_code.co_filename):
            audit.look(event, args, frame.f_lineno)
            return
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
