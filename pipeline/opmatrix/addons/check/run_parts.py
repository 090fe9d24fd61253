"""Run the parts of `doit check` on one model, within its limits, and print a finding for a part that dies."""

from __future__ import annotations

import math
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from opmatrix.addons.check.arguments import CheckRequest
from opmatrix.addons.check.parts import (
    MEGABYTES,
    SECONDS,
    Do,
    Link,
    PartCall,
    Result,
    default_megabytes,
    parts,
    run_parts,
)
from opmatrix.basics import finding
from opmatrix.basics.errors import UsageError
from opmatrix.basics.finding import Finding
from opmatrix.basics.version import minor
from opmatrix.engine.server_pool import Ending, Pool
from opmatrix.engine.step_failure import death_message, read_output
from opmatrix.project.cells import rows
from opmatrix.project.paths import Paths
from opmatrix.project.settings import StepLimits, installed, step_limits
from opmatrix.records.step import server_name

SERVER = "check"  # imports onnx and onnxruntime once for all models
_QUESTIONS = {"read": "nodes", "run": "runs", "compare": "first node"}
Show = Callable[[str, Sequence[Finding]], None]
"""A function of a title and findings."""


class ModelChecks:
    """The checks of models and functions. Each part is a process that imports torch or ONNX Runtime, never both.

    Where a shared process (`several`) has written the result of a part, that is taken. Any thread may call
    `check`. `doing`: the part that runs, for progress.
    """

    def __init__(self, paths: Paths, *, lock: int, command: str, project: bool = True) -> None:
        """`command` checks a model, such as "doit check"; without a `project`, paths are shown whole."""
        self.paths, self.command, self._project = paths, command, project
        self._limits: dict[str, StepLimits] = {}
        self.over: dict[str, tuple[Ending, Path]] = {}  # the processes that have spent a model's time, and their logs
        self._linking = Lock()
        self.doing = ""
        self._pool = Pool(paths, entry="opmatrix.commands.stages:main", lock=lock)

    def __enter__(self) -> ModelChecks:
        self._pool.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def folder(self, request: CheckRequest) -> Path:
        return self.paths.model_check(request.label)

    def is_done(self, request: CheckRequest) -> bool:
        """Return whether a shared process has checked a model."""
        return (self.folder(request) / "done").exists()

    def forget(self, request: CheckRequest) -> None:
        """Remove the results of an earlier command."""
        shutil.rmtree(self.folder(request), ignore_errors=True)

    def limits(self, request: CheckRequest) -> StepLimits:
        """Return the limits of a model: those that were given, or the default ones within those of a step."""
        if request.label not in self._limits:
            least = MEGABYTES if request.function else default_megabytes(Path(request.model))
            of_step = step_limits(self.paths)
            seconds = request.seconds or min(SECONDS, of_step.seconds)
            megabytes = request.megabytes or min(least, of_step.megabytes)
            self._limits[request.label] = StepLimits(seconds=seconds, megabytes=megabytes)
        return self._limits[request.label]

    def time_is_over(self, request: CheckRequest, ending: Ending, log: Path) -> None:
        """Let `check` find that a shared process has spent the time of a model."""
        self.over[request.label] = replace(ending, stopped="time"), log

    def check(self, request: CheckRequest, show: Show, *, spent: float = 0.0) -> Mapping[str, Any]:
        """Pass all findings to `show`, under the title of the model that they concern, and return what is known of it.
        `spent`: seconds of its time. Raises UsageError for a file that is no model or a function that returns none."""
        return _ModelCheck(self, request, show, until=time.monotonic() + self.limits(request).seconds - spent).run()

    def link(self, names: Sequence[str]) -> Result:
        """Link operators that share a domain into one library."""
        log = self.paths.log(f"link-together:{self.paths.combined_folder(names).name}")
        of_step = step_limits(self.paths)
        with self._linking:  # models that need the same operators
            ending = self.run(["link-together", *names], log, seconds=of_step.seconds, megabytes=of_step.megabytes)
        if ending.done:
            return Result()
        died = read_output(log) or self.failure(ending, log, of_step)
        return Result(findings=[finding.wrong("libraries", died)], died=died)

    def run(
        self, arguments: Sequence[str], log: Path, server: str | None = None, *, seconds: float, megabytes: float
    ) -> Ending:
        return self._pool.run(arguments, server=server, log=log, seconds=seconds, megabytes=megabytes, written=math.inf)

    def failure(self, ending: Ending, log: Path, limited: StepLimits, arguments: Sequence[str] = ()) -> str:
        """Return how a process failed, its log, and the command that runs it again."""
        died = death_message(ending, seconds=limited.seconds, megabytes=limited.megabytes)
        if option := {"time": "--seconds", "memory": "--megabytes"}.get(ending.stopped):
            died += f"; {option} sets the limit of a model, and --shape its sizes"
        return self.described(died or f"failed: {''.join(read_output(log).splitlines()[-1:])}", log, arguments)

    def described(self, how: str, log: Path, arguments: Sequence[str]) -> str:
        """Return how a process ended, its log, and the command that runs it again."""
        command = shlex.join(["python", "-m", "opmatrix", *arguments])
        if not self._project:
            command = f"(cd {shlex.quote(str(self.paths.root))} && {command})"
        return f"{how}. Log: {self.shown(str(log))}" + (f". Replay: {command}" if arguments else "")

    def shown(self, path: str) -> str:
        """Return a path as messages have it: from the project's root."""
        inside = self._project and Path(path).is_relative_to(self.paths.root)
        return str(Path(path).relative_to(self.paths.root)) if inside else path


class _ModelCheck:
    """The check of one model or function, whose time ends at `until`."""

    def __init__(self, checks: ModelChecks, request: CheckRequest, show: Show, *, until: float) -> None:
        self._checks, self._request, self._show_titled, self._until = checks, request, show, until
        self._title = checks.shown(request.model)
        self._judged = False  # whether a finding is more than a note

    def _show(self, findings: Sequence[Finding]) -> None:
        self._judged |= any(f.mark != "note" for f in findings)
        self._show_titled(self._title, findings)

    def run(self) -> Mapping[str, Any]:
        """Show all findings, and return what is known of the model, of a function's the last one."""
        checks, request, title = self._checks, self._request, self._title
        self._show([])
        facts: dict[str, Any] = {}
        if not request.function:
            facts = self._model(request.model, checks.folder(request), of="")
        else:
            for cell, found in self._capture().items():  # what each exporter writes
                self._title = f"{cell}  {checks.shown(found['model'] or '')}".rstrip()
                self._show([Finding(**f) for f in found["findings"]])
                if found["model"]:
                    of = f"torch {minor(installed().torch)}"
                    facts |= self._model(found["model"], checks.folder(request) / cell, of=of)
        if not self._judged:
            self._title = title
            self._show([finding.wrong(finding.CHECK, "nothing was checked")])
        return facts

    def _capture(self) -> dict[str, Any]:
        """Build, run and export the function's model; return the findings and the model of each cell. After an exporter
        that kills its process, run the remaining ones in another."""
        request, folder = self._request, self._checks.folder(self._request)
        cells: dict[str, Any] = {}
        remaining = list(request.exporters)
        while remaining:
            exporters = [word for e in remaining for word in ("--exporter", e)]
            result = self._part("capture", request.model, folder, *exporters, "--opset", str(request.opset))
            findings, facts = list(result.findings), result.facts
            cell, before = facts.get("cell", ""), len(cells)
            cells |= facts.get("cells", {})
            remaining = remaining[len(cells) - before :] if result.died and cell else []
            if result.died:
                what = f"while {facts.get('doing', 'it began')}: {result.died}"
                crash = finding.wrong("export" if cell else "torch", what)
                if cell:
                    cells[cell]["findings"].append(vars(crash))
                else:
                    findings.append(crash)
            if not before:
                self._show(findings)
        self._show([finding.note("export", f"left out: {why}") for why in request.left_out])
        return cells

    def _model(self, model: str, folder: Path, *, of: str) -> dict[str, Any]:
        options, facts = self._request.parts, dict[str, Any]()
        libraries = parts(self._do(model, folder, facts), options, of=of)
        if libraries is not None and (other := self._other_environment()):
            do = self._do(model, folder / other, {}, server=server_name("ort", other))
            run_parts(do, options, libraries, of=of, own=facts["own"])
        return facts

    def _do(self, model: str, folder: Path, facts: dict[str, Any], *, server: str = SERVER) -> Do:
        """Return a function that runs a part, shows its findings, and adds what it knows to `facts`."""

        def do(part: PartCall | Link) -> Result:
            if isinstance(part, Link):
                result = self._checks.link(part.operators)
                self._show(result.findings)
                return result
            result = self._part(part.name, model, folder, *part.options, server=server)
            if part.name == "run" and result.killed:  # perhaps by the optimised graph, so it is left out
                (folder / "done").unlink(missing_ok=True)
                died = ("--died", f"the process {result.died}")
                again = self._part("run", model, folder, *part.options, *died, server=server)
                result = result if again.died else again
            facts.update(result.facts)
            alone = result.facts.get("alone")  # the first node, as a model
            command = f" It alone: {self._checks.command} {shlex.quote(self._checks.shown(alone))}" if alone else ""
            found = [replace(f, remedy=f.remedy + command) if f.mark == "wrong" else f for f in result.findings]
            self._show([*found, *_deaths(result, part)])
            return result

        return do

    def _other_environment(self) -> str:
        """Return the environment of the ONNX Runtime of --ort, or "": it is the installed one or not installed."""
        version = minor(self._request.ort)
        if not version or version == minor(installed().onnxruntime):
            return ""
        name = f"ort{version}"
        if self._checks.paths.python(name).is_file():
            return name
        make = f"Make it, and it will be: python -m opmatrix environment {name}" if version in rows().ort else ""
        text = f"not run in ONNX Runtime {version}, of which there is no environment"
        self._show([Finding(question="runs", mark="note", text=text, remedy=make)])
        return ""

    def _part(self, part: str, model: str, folder: Path, *options: str, server: str | None = None) -> Result:
        """Run one part in a server, None: the light one, unless its results are there. Raises UsageError if it cannot
        read the model. A part without results has died, with any exit code."""
        checks, limited = self._checks, self._checks.limits(self._request)
        path = folder / f"{part}.json"
        relative = folder.relative_to(checks.paths.model_check(""))
        arguments = [f"check-{part}", model, "--into", str(folder), *options]
        log = checks.paths.log(f"check:{relative.as_posix().replace('/', '-')}-{part}")
        died, ours, stopped, killed = "", False, False, False
        if server != SERVER or not path.is_file():
            path.unlink(missing_ok=True)
            checks.doing = f"check-{part} of {checks.shown(model)}"
            if self._request.label in checks.over:
                ending, log = checks.over[self._request.label]
            else:
                seconds = max(0.0, self._until - time.monotonic())
                known_limit = ["--seconds", f"{seconds:.1f}"] if part in ("run", "compare") else []
                words = [*arguments, *known_limit]
                ending = checks.run(words, log, server, seconds=seconds, megabytes=limited.megabytes)
            died = "" if ending.done else checks.failure(ending, log, limited, arguments)
            ours = ending.done or not death_message(ending, seconds=limited.seconds, megabytes=limited.megabytes)
            stopped = bool(ending.stopped)
            killed = ending.status < 0 and not stopped
        try:
            findings, facts = finding.read(path)
        except (FileNotFoundError, ValueError):
            died = died or checks.described("left no answer", log, arguments)
            return Result(died=died, ours=ours, stopped=stopped, killed=killed)
        if error := facts.get("error"):
            raise UsageError(error)
        if not findings and not facts.get("cells") and "judged" not in facts:  # there may be no node to compare
            died = died or checks.described("answered nothing", log, arguments)
        return Result(findings=findings, facts=facts, died=died, ours=ours, stopped=stopped, killed=killed)


def _deaths(result: Result, part: PartCall) -> list[Finding]:
    """Return that a part died, if it did. An exception of opmatrix says nothing about the model, and neither does the
    comparison of standard nodes, which computes more than the model, in Python."""
    if not result.died:
        return []
    if result.ours:
        return [finding.ours(f"in check-{part.name}: the process {result.died}")]
    if part.name == "read" and result.stopped:
        return [finding.note("agrees", f"the model is not checked: the process {result.died}")]
    if part.name == "compare" and "--own" not in part.options:
        return [finding.note("agrees", f"the nodes are not compared: the process {result.died}")]
    if result.stopped and "--library" not in part.options:  # ONNX Runtime's own kernels, which do end
        return [finding.wrong(finding.CHECK, f"the model does not run within its limits: the process {result.died}")]
    return [finding.wrong(_QUESTIONS[part.name], f"the process {result.died}")]
