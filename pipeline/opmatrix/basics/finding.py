"""A finding of `doit check`, and the JSON file that carries findings between its processes. Imports no framework."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from opmatrix.basics.errors import one_line
from opmatrix.basics.files import write_text

Mark = Literal["ok", "wrong", "note"]
"""`note` is information that is no fault, such as a check that could not run."""

CHECK, OPTIMIZER = "check", "optimizer"  # the questions of what concerns opmatrix or ONNX Runtime, and not the model


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check, `question`, such as "nodes"; `remedy` is how to fix a fault."""

    question: str
    mark: Mark
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        """Return text and remedy as one line."""
        text = one_line(self.text).rstrip(".")
        return f"{text}. {one_line(self.remedy)}" if self.remedy else text


def ok(question: str, text: str) -> Finding:
    return Finding(question=question, mark="ok", text=text)


def note(question: str, text: str) -> Finding:
    return Finding(question=question, mark="note", text=text)


def wrong(question: str, text: str, remedy: str = "") -> Finding:
    return Finding(question=question, mark="wrong", text=text, remedy=remedy)


def ours(what: str) -> Finding:
    """Return that opmatrix itself fails: it says nothing about the model, and so it is no agreement either."""
    remedy = "This is no fault of the model: open an issue of opmatrix with this line and the model"
    return wrong(CHECK, f"opmatrix fails {what}", remedy)


def write(path: Path, findings: Sequence[Finding], **more: Any) -> None:
    """Write findings, and the values that the next part of the check needs."""
    write_text(path, json.dumps({"findings": [asdict(f) for f in findings], **more}, indent=1) + "\n")


def read(path: Path) -> tuple[list[Finding], Mapping[str, Any]]:
    """Read what `write` wrote. Raises FileNotFoundError."""
    data = json.loads(path.read_text(encoding="utf-8"))
    return [Finding(**found) for found in data.pop("findings")], data
