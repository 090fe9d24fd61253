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

A fault with ``nightly = true`` runs each night alone; its step finds another one of its file for each change.

`to` is another name that the edited file gets. `passes` names a step that also runs and finds nothing. A fault of
several edits has a table for each; the first one has the step. A file of build/generated or native/binding is edited
after a run that finds nothing; then the copy is compiled, and its step runs again.

`section`, `op`, `file`, `old` and `step` may be set once for all rows, at the start of the file. A copy has the name,
the domain and the namespace of its operator with a number appended, which is removed from what its steps print. Names
in single quotes stay as they are.

A file with `models` plants its faults in these, for one run of `doit check`, after each `op`, if any, is compiled:

    model = "one"  # of a row that names no other

    [models]  # in the syntax of onnx.parser, or Python with a function build()
    one = '''<ir_version: 8, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { y = Relu (x) }'''

    [["an unknown op type"]]
    old = "Relu"
    new = "Relo"
    step = "check"
    says = "nodes: Relo (gives 'y'): ONNX has no such operator. Did you mean 'Relu'?"

A row that has a `file`, such as a kernel, edits a copy of the operator, which its model then calls.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import pytest
from onnx import parser

from docs.site.gates import HEAD
from opmatrix.basics import finding
from tests.support.projects import ROOT, Project, edited

SOUND = "without a fault: "
_LATE = ("build/generated/", *(_SHARED := ("native/binding/", "native/include/")))  # files that plant() does not edit
_TEXTS = (".py", ".h", ".cc", ".json")  # in which names are replaced
_MARKS = dict.fromkeys(("declaration", "codegen", "data", "cases"), ("incremental",)) | {"check": ("ort",)}
_HEAVY = ("compile", "torch", "ort", "slow")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> Batch | None:
    return Batch.from_parent(parent, path=file_path) if file_path.suffix == ".toml" else None


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One replacement in a file, which may get another name, or in the model; without `old`, `new` is appended."""

    file: str = ""
    new: str = ""
    old: str = ""
    to: str = ""

    def path(self, project: Project, op: str, copy: str) -> Path:
        return project.root / self.file.replace(f"/{op}/", f"/{copy}/", 1)

    def apply(self, text: str) -> str:
        assert self.old in text, f"{self.old!r} is not in {self.file or 'the model'}"
        return text.replace(self.old, self.new) if self.old else text + self.new


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A fault in an operator or a model, and the step that must find it: its group, and what follows the name."""

    step: str
    op: str = ""
    model: str = ""
    says: str | Sequence[str] = ""
    passes: str = ""
    nightly: bool = False
    edits: Sequence[Edit] = ()

    @classmethod
    def read(cls, tables: Sequence[Mapping[str, Any]], head: Mapping[str, Any]) -> Planted:
        tables = [{**head, **table} for table in tables]
        first = tables[0]
        edits = [Edit(**{key: table[key] for key in ("file", "old", "new", "to") if key in table}) for table in tables]
        keys = ("op", "model", "step", "says", "passes", "nightly")
        return cls(**{key: first[key] for key in keys if key in first}, edits=edits)

    def pattern(self, step: str, copy: str) -> str:
        """Return the pattern of the names of a step's tasks, for the name of a copy."""
        group, _, part = step.partition(":")
        if group == "compat":
            return f"compat:{copy}@*"
        return f"{group}:{copy}{f'-{part}' if part else ''}{'*' if part and '@' not in part else ''}"

    def tasks(self, copy: str) -> list[str]:
        """Return what doit runs. Declarations have tasks only if they cannot be used."""
        asked = [step for step in (self.step, self.passes) if step]
        return [step if step == "declaration" else self.pattern(step, copy) for step in asked]


class Batch(pytest.File):
    """The faults of one file, which the first test plants."""

    def collect(self) -> Iterator[Fault]:
        groups = {one.step.partition(":")[0] for one in self.planted.values()}
        if "models" in self._data and "op" in self._data:
            groups.add("compile")
        for name, planted in self.planted.items():
            item = Fault.from_parent(self, name=name)
            if planted.nightly:
                item.add_marker("nightly")
            for mark in {mark for group in groups for mark in _MARKS.get(group, _HEAVY)}:
                item.add_marker(mark)
            yield item

    @cached_property
    def planted(self) -> Mapping[str, Planted]:
        """The faults, and each operator or model without one, for each step, which must find none there."""
        head = {key: value for key, value in self._data.items() if key in HEAD}
        faults = {name: Planted.read(rows, head) for name, rows in self._data.items() if name not in HEAD}
        steps = defaultdict[tuple[str, str, str], list[bool]](list)
        for one in faults.values():
            if one.step != "declaration":
                steps[one.op, one.model, one.step].append(one.nightly)
        sound = [
            Planted(op=op, model=model, step=step, nightly=all(nightly))
            for (op, model, step), nightly in sorted(steps.items())
        ]
        return faults | {f"{SOUND}{one.model or one.op}, {one.step}": one for one in sound}

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        """The number of each copy, whatever faults are asked for: what a search draws depends on the name of a copy."""
        return {fault: number for number, fault in enumerate(self.planted)}

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
            if "models" in self._data:
                sound = [name for name in self.planted if name.startswith(SOUND)]
                return self._of_check(project, source, [*dict.fromkeys([*asked, *sound])])
            copies, said = dict[str, str](), dict[str, Sequence[tuple[str, str]]]()
            for fault in asked:
                try:
                    copies[fault] = plant(self.planted[fault], source, project, self._numbers[fault])
                except AssertionError as error:
                    said[fault] = [("the edit", str(error))]
            tasks = {task for fault, copy in copies.items() for task in self.planted[fault].tasks(copy)}
            events = root / "events.jsonl"
            done = project.doit("-r", "jsonl", "-o", str(events), *self._data.get("options", ()), *sorted(tasks))
            if not events.is_file():  # such as where the declaration of a copy cannot be used
                text = f"{done.stdout}{done.stderr}\n{project.doit('declaration').stdout}"
                return said | {fault: [("doit", text)] for fault in copies}
            ended = [event for event in map(json.loads, events.read_text().splitlines()) if event["event"] == "end"]
            late = [one for one in copies if any(e.file.startswith(_LATE) for e in self.planted[one].edits)]
            alone = [one for one in late if any(e.file.startswith(_SHARED) for e in self.planted[one].edits)]
            for faults in ([one for one in late if one not in alone], *([one] for one in alone)):
                ended += self._run_late(project, {fault: copies[fault] for fault in faults})
            for fault, copy in copies.items():
                said[fault] = [*_failed(ended, project, copy, self.planted[fault].op)]
            return said

    def _run_late(self, project: Project, copies: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        """Edit the files that are not edited yet, compile the copies, and run their steps; yield those that failed."""
        tasks = [f"compile:{copy}" for copy in copies.values()]
        with ExitStack() as edits:
            for planted, copy in ((self.planted[fault], copy) for fault, copy in copies.items()):
                for edit in planted.edits:
                    if edit.file.startswith(_LATE):
                        path = edit.path(project, planted.op, copy)
                        edits.enter_context(edited(path, text := path.read_text(), edit.apply(text)))
                tasks += planted.tasks(copy)
            done = project.doit("-s", *self._data.get("options", ()), *tasks) if tasks else None
        for step, reason in re.findall(r" (\S+) FAILED\n((?:  .*\n)*)", done.stdout if done else ""):
            yield {"step": step, "outcome": "failed", "reason": reason}

    def _of_check(
        self, project: Project, source: Path, asked: Sequence[str]
    ) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Return what `doit check` prints about each fault's model, unless it is right: its line and its findings."""
        names, said = dict[str, str](), dict[str, Sequence[tuple[str, str]]]()
        for fault in asked:
            planted, number = self.planted[fault], self._numbers[fault]
            try:
                names[fault] = write_model(self._data["models"][planted.model], planted, source, project, number)
            except (AssertionError, parser.ParseError) as error:
                said[fault] = [("the edit", str(error))]
        if ops := {self.planted[fault].op for fault in names} - {""}:
            made = {path.name for op in ops for path in (project.root / "ops").glob(f"{op}*")}
            project.passes(*(f"compile:{name}" for name in sorted(made)))
        (project.root / "none.onnx").touch()  # one of several has a line
        words = [*self._data.get("options", ()), *names.values(), "none.onnx"]
        done = project.doit("check", *words, NO_COLOR="1", PYTHONIOENCODING="utf-8")
        for fault, name in names.items():
            printed = done.stdout + done.stderr
            line = next((line for line in printed.splitlines() if line[15:].startswith(f"{name}: ")), printed)
            files = project.paths.model_check("").glob(f"{Path(name).stem}[-.]*/**/*.json")
            found = [f"{f.question}: {f}" for path in sorted(files) for f in finding.read(path)[0]]
            text = re.sub(r"_copy\d+", "", "\n".join([line, *found]))
            said[fault] = [] if line.startswith("✓ right") else [(f"check:{self.planted[fault].model}", text)]
        return said


def write_model(text: str, planted: Planted, source: Path, project: Project, number: int) -> str:
    """Write the text of a model with its fault, for the operator or a copy of it; return what `doit check` calls it."""
    of_model, of_op = ([edit for edit in planted.edits if bool(edit.file) == file] for file in (False, True))
    text = reduce(lambda text, edit: edit.apply(text), of_model, text)
    if of_op:
        names = _names(planted.op, Project(source).paths.spec(planted.op).read_text())
        text = names.sub(rf"\g<0>_copy{number}", text)
        plant(replace(planted, edits=of_op), source, project, number)
    name = f"models/{f'm{number}' if planted.edits else planted.model}"
    (project.root / "models").mkdir(exist_ok=True)
    if not text.startswith("<"):
        (project.root / f"{name}.py").write_text(text)
        return f"{name}.py:build"
    (project.root / f"{name}.onnx").write_bytes(parser.parse_model(text).SerializeToString())
    return f"{name}.onnx"


def plant(planted: Planted, source: Path, project: Project, number: int) -> str:
    """Copy an operator under another name, with the fault; return the name."""
    copy, suffix = f"{planted.op}_copy{number}", f"_copy{number}"
    folders = [project.root / room / copy for room in ("ops", "native")]
    for folder in folders:
        made = source / folder.parent.name / planted.op
        if made.is_dir():
            shutil.copytree(made, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in (edit for edit in planted.edits if not edit.file.startswith(_LATE)):
        path = edit.path(project, planted.op, copy)
        text = edit.apply(path.read_text() if path.is_file() else "")
        if edit.to:
            path.unlink()
            path = replace(edit, file=edit.to).path(project, planted.op, copy)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = _names(planted.op, path.read_text() if (path := project.paths.spec(copy)).is_file() else "")
    for path in (one for folder in folders for one in folder.rglob("*") if one.suffix in _TEXTS and one.is_file()):
        path.write_text(names.sub(rf"\g<0>{suffix}", path.read_text()))
    return copy


def _names(op: str, spec: str) -> re.Pattern[str]:
    """Return a pattern of the name, the domain and the namespace of an operator."""
    namespaces, domains = {*re.findall(r'"(?!aten::)(\w+)::\w', spec)}, {*re.findall(r'domain="([^"]+)"', spec)}
    names = [
        rf"(?<!\w)(?<!aten::){op}(?=_(?:gradient|typed)\b|\W|$)",  # torch has no copy of its operator
        *(rf"(?<!\w){name}(?=::|, m\)|, CPU, m\))|(?<=torch.ops.){name}(?=\.)" for name in namespaces),
        *(rf"(?<=[\"']){re.escape(name)}(?=[\"':])|(?<== ){re.escape(name)}(?=\.)" for name in domains),
    ]
    return re.compile("|".join(names))


def _failed(ended: Sequence[Mapping[str, Any]], project: Project, copy: str, op: str) -> Iterator[tuple[str, str]]:
    """Yield each step of a copy that failed, named as the operator's, with its reason and its log; and each export that
    succeeded, with "": both exporters must find a fault of a lowering."""
    suffix = copy.removeprefix(op)
    for event in ended:
        group, _, rest = event["step"].partition(":")
        step = event["step"].replace(suffix, "")
        if not re.match(rf"{copy}(?!\w)", rest):
            continue
        if event["outcome"] == "failed":
            log = project.root / f"build/log/{group}/{rest}.log"
            text = f"{event['reason']}\n{log.read_text() if log.is_file() else ''}"
            yield step, text.replace(suffix, "").replace(sys.executable, "python")
        elif group == "export" and event["outcome"] == "succeeded":
            yield step, ""


def problem(planted: Planted, failed: Sequence[tuple[str, str]]) -> str:
    """Return what is wrong with the steps that failed, and what they said, or ""."""
    shown = "\n\n".join(f"{step}: {text}" for step, text in failed) or "no step failed"
    pattern = planted.pattern(planted.step, planted.model or planted.op)
    missed = [step for step, text in failed if not text and fnmatch(step, pattern)]
    failed = [(step, text) for step, text in failed if text]
    if not planted.says:
        return shown if failed else ""
    if missed or not failed or not all(fnmatch(step, pattern) for step, _ in failed):
        return f"{pattern} alone must fail, in every exporter\n\n{shown}"
    words = [planted.says] if isinstance(planted.says, str) else planted.says
    found = any(all(word in text for word in words) for _, text in failed)
    return "" if found else f"{', '.join(map(repr, words))} must be said\n\n{shown}"


class Fault(pytest.Item):
    """One fault, which its step must find, or an operator without one, in which no step finds any."""

    parent: Batch

    def runtest(self) -> None:
        wrong = problem(self.parent.planted[self.name], self.parent.said[self.name])
        if wrong:
            pytest.fail(wrong, pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, self.name
