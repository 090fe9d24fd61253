"""Faults as data: each file *.toml here plants its faults in copies of operators of one project, in one run of doit.

    project = "variadic"  # of tests/projects; without it, the operators of this checkout
    options = ["opsets=18"]  # of doit

    [["a kernel with the outputs in another order"]]  # as docs/reference/gates.md calls it
    op = "split_rows"
    file = "native/split_rows/kernel.h"  # written where it is missing; without `old`, the text is added to its end
    old = "+ k * size + i]"
    new = "+ (count - 1 - k) * size + i]"
    step = "register:kernel"  # that finds it, and no step before it
    says = "split_rows-three in torch: blocks_0: "  # or a list, all of which one message has

A fault of several files has a table for each, of which the first has the step. All are read before any is planted: a
copy has the name, the domain and the namespace of its operator with a number behind them, which no message shows.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.support.projects import ROOT, Project

SOUND = "without a fault: "
_MARKS = {"declaration": ("incremental",), "codegen": ("incremental",), "compile": ("compile",)}  # by the step's group
_HEAD = ("project", "options")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Batch | None:
    return Batch.from_parent(parent, path=file_path) if file_path.suffix == ".toml" else None


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A text of a file that another one replaces."""

    file: str
    new: str
    old: str = ""

    def apply(self, text: str) -> str:
        assert self.old in text, f"{self.old!r} is not in {self.file}"
        return text.replace(self.old, self.new) if self.old else text + self.new


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A fault in an operator, and the step that must find it: its group, and what follows the operator's name."""

    op: str
    step: str
    says: str | Sequence[str] = ""
    edits: Sequence[Edit] = ()

    @classmethod
    def read(cls, tables: Sequence[Mapping[str, Any]]) -> Planted:
        first = tables[0]
        edits = [Edit(**{key: table[key] for key in ("file", "old", "new") if key in table}) for table in tables]
        return cls(op=first["op"], step=first["step"], says=first["says"], edits=edits)

    def tasks(self, copy: str) -> str:
        """Return the pattern of the names of its steps, for the name of a copy."""
        group, _, part = self.step.partition(":")
        return f"{group}:{copy}{f'-{part}' if part else ''}{'*' if part and '@' not in part else ''}"


class Batch(pytest.File):
    """The faults of one file, which the first test plants."""

    def collect(self) -> Iterator[Fault]:
        groups = {one.step.partition(":")[0] for one in self.planted.values()}
        for name in self.planted:
            item = Fault.from_parent(self, name=name)
            for mark in {mark for group in groups for mark in _MARKS.get(group, ("compile", "torch", "ort", "slow"))}:
                item.add_marker(mark)
            yield item

    @cached_property
    def planted(self) -> Mapping[str, Planted]:
        """The faults, and each operator without one for each of their steps: no step finds a fault in a mere copy."""
        faults = {name: Planted.read(rows) for name, rows in self._data.items() if name not in _HEAD}
        steps = sorted({(one.op, one.step) for one in faults.values() if one.step != "declaration"})
        return faults | {f"{SOUND}{op}, {step}": Planted(op=op, step=step) for op, step in steps}

    @cached_property
    def _data(self) -> Mapping[str, Any]:
        return tomllib.loads(self.path.read_text())

    @cached_property
    def said(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Of each fault that is asked for the steps of its copy that failed, with what they said."""
        asked = [item.name for item in self.session.items if item.parent is self]
        with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
            root = Path(temporary).resolve()
            if name := self._data.get("project"):
                project, source = Project.of(name, root), ROOT / "tests/projects" / name
            else:
                project, source = Project.copy(root, operators=()), ROOT
            copies = dict[str, str]()
            for number, fault in enumerate(asked):
                copies[fault] = _plant(self.planted[fault], source, project, number)
            tasks = [self.planted[fault].tasks(copy) for fault, copy in copies.items()]
            events = root / "events.jsonl"
            done = project.doit("-r", "jsonl", "-o", str(events), *self._data.get("options", ()), *tasks)
            assert events.is_file(), f"{done.stdout}{done.stderr}\n{project.doit('declaration').stdout}"
            ended = [event for event in map(json.loads, events.read_text().splitlines()) if event["event"] == "end"]
            return {fault: [*_failed(ended, project, copy, self.planted[fault].op)] for fault, copy in copies.items()}


def _plant(planted: Planted, source: Path, project: Project, number: int) -> str:
    """Copy an operator under another name, with the fault; return the name."""
    copy, texts = f"{planted.op}_copy{number}", dict[str, str]()
    for room in ("ops", "native"):
        folder = source / room / planted.op
        for path in folder.rglob("*") if folder.is_dir() else ():
            if path.is_file() and not {"published", "__pycache__"} & {*path.parts}:
                texts[str(path.relative_to(source))] = path.read_text()
    for edit in planted.edits:
        texts[edit.file] = edit.apply(texts.get(edit.file, ""))
    spec = texts[f"ops/{planted.op}/spec.py"]
    suffix = copy.removeprefix(planted.op)
    for file, text in texts.items():
        text = re.sub(rf"(?<!\w){planted.op}(?=_gradient\b|\W|$)", copy, text)
        for namespace in {*re.findall(r'"(\w+)::\w', spec)}:
            text = re.sub(rf"(?<!\w){namespace}(?=::)|(?<=torch.ops.){namespace}(?=\.)", namespace + suffix, text)
        for domain in {*re.findall(r'domain="([^"]+)"', spec)}:
            text = re.sub(rf"(?<=[\"']){re.escape(domain)}(?=[\"':])", domain + suffix, text)
        path = project.root / re.sub(rf"(?<=/){planted.op}(?=/)", copy, file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return copy


def _failed(ended: Sequence[Mapping[str, Any]], project: Project, copy: str, op: str) -> Iterator[tuple[str, str]]:
    """Yield each step of a copy that failed, as the operator's, with its reason and its log."""
    for event in ended:
        group, _, rest = event["step"].partition(":")
        if event["outcome"] == "failed" and re.match(rf"{copy}(?!\w)", rest):
            log = project.root / f"build/log/{group}/{rest}.log"
            text = f"{event['reason']}\n{log.read_text() if log.is_file() else ''}"
            suffix = copy.removeprefix(op)
            yield event["step"].replace(suffix, ""), text.replace(suffix, "")


class Fault(pytest.Item):
    """One fault, which its step must find, or an operator without one, in which no step finds any."""

    parent: Batch

    def runtest(self) -> None:
        planted, failed = self.parent.planted[self.name], self.parent.said[self.name]
        shown = "\n\n".join(f"{step}: {text}" for step, text in failed) or "no step failed"
        if not planted.says:
            assert not failed, shown
            return
        pattern = planted.tasks(planted.op)
        assert failed and all(fnmatch(step, pattern) for step, _ in failed), f"asked for {pattern}\n\n{shown}"
        says = [planted.says] if isinstance(planted.says, str) else planted.says
        assert any(all(one in text for one in says) for _, text in failed), f"asked for {says}\n\n{shown}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        return str(excinfo.value) if isinstance(excinfo.value, AssertionError) else str(excinfo.getrepr())

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
