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

from opmatrix.addons.check import limits
from opmatrix.addons.check.arguments import CheckRequest
from opmatrix.addons.check.parts import Link, PartCall, Parts, Result, parts, run_parts
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


class ModelChecks:
    """The checks of models and functions. Each part is a process that imports torch or ONNX Runtime, never both.

    Where a shared process (`several`) has written the result of a part, that is taken. Any thread may call
    `check`. `doing`: the part that runs, for progress.
    """

    def __init__(self, paths: Paths, *, lock: int, command: str, project: bool = True) -> None:
        """`command` checks a model, such as "doit check"; without a `project`, paths are shown whole."""
        self._paths, self._command, self._project = paths, command, project
        self._limits: dict[str, StepLimits] = {}
        self._until: dict[str, float] = {}  # when the time of each model is over
        self._over: dict[str, tuple[Ending, Path]] = {}  # the processes that have spent it, and their logs
        self._linking = Lock()
        self.doing = ""
        self._pool = Pool(paths, entry="opmatrix.commands.stages:main", lock=lock)

    def __enter__(self) -> ModelChecks:
        self._pool.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()

    def folder(self, request: CheckRequest) -> Path:
        return self._paths.model_check(request.label)

    def is_done(self, request: CheckRequest) -> bool:
        """Return whether a shared process has checked a model."""
        return (self.folder(request) / "done").exists()

    def forget(self, request: CheckRequest) -> None:
        """Remove the results of an earlier command."""
        shutil.rmtree(self.folder(request), ignore_errors=True)

    def limits(self, request: CheckRequest) -> StepLimits:
        """Return the limits of a model: those that were given, or the default ones within those of a step."""
        if request.label not in self._limits:
            least = limits.MEGABYTES if request.function else limits.default_megabytes(Path(request.model))
            of_step = step_limits(self._paths)
            seconds = request.seconds or min(limits.SECONDS, of_step.seconds)
            megabytes = request.megabytes or min(least, of_step.megabytes)
            self._limits[request.label] = StepLimits(seconds=seconds, megabytes=megabytes)
        return self._limits[request.label]

    def time_is_over(self, request: CheckRequest, ending: Ending, log: Path) -> None:
        """Let `check` find that a shared process has spent the time of a model."""
        self._over[request.label] = replace(ending, stopped="time"), log

    def check(
        self, request: CheckRequest, show: Callable[[str, Sequence[Finding]], None], *, spent: float = 0.0
    ) -> Mapping[str, Any]:
        """Pass all findings to `show`, under the title of the model that they concern, and return what is known of it.
        `spent`: seconds of its time. Raises UsageError for a file that is no model or a function that returns none."""
        folder = self.folder(request)
        self._until[request.label] = time.monotonic() + self.limits(request).seconds - spent
        title = self._shown(request.model)
        counted: list[Finding] = []

        def shown(of: str, findings: Sequence[Finding]) -> None:
            counted.extend(findings)
            show(of, findings)

        show(title, [])
        known: Mapping[str, Any] = {}
        if request.function:
            known = self._function(request, folder, title, shown)
        else:
            known = self._model(request.model, folder, request, title, shown, of="")
        if not any(f.mark != "note" for f in counted):
            show(title, [finding.wrong(finding.CHECK, "nothing was checked")])
        return known

    def _function(
        self, request: CheckRequest, folder: Path, title: str, show: Callable[[str, Sequence[Finding]], None]
    ) -> dict[str, Any]:
        """Capture the model of a function and check what each exporter writes; return what is known of the last."""
        known: dict[str, Any] = {}
        of = f"torch {minor(installed().torch)}"
        for cell, found in self._capture(request, folder, title, show).items():
            of_cell = f"{cell}  {self._shown(found['model'] or '')}".rstrip()
            show(of_cell, [Finding(**f) for f in found["findings"]])
            if found["model"]:
                known |= self._model(found["model"], folder / cell, request, of_cell, show, of=of)
        return known

    def _capture(
        self, request: CheckRequest, folder: Path, title: str, show: Callable[[str, Sequence[Finding]], None]
    ) -> dict[str, Any]:
        """Build, run and export the function's model; return the findings and the model of each cell. After an exporter
        that kills its process, run the remaining ones in another."""
        cells: dict[str, Any] = {}
        remaining = list(request.exporters)
        while remaining:
            exporters = [word for e in remaining for word in ("--exporter", e)]
            result = self._part("capture", request.model, folder, *exporters, "--opset", str(request.opset))
            findings, known = list(result.findings), result.known
            cell, before = known.get("cell", ""), len(cells)
            cells |= known.get("cells", {})
            remaining = remaining[len(cells) - before :] if result.died and cell else []
            if result.died:
                what = f"while {known.get('doing', 'it began')}: {result.died}"
                crash = finding.wrong("export" if cell else "torch", what)
                if cell:
                    cells[cell]["findings"].append(vars(crash))
                else:
                    findings.append(crash)
            if not before:
                show(title, findings)
        show(title, [finding.note("export", f"left out: {why}") for why in request.left_out])
        return cells

    def _model(
        self,
        model: str,
        folder: Path,
        request: CheckRequest,
        title: str,
        show: Callable[[str, Sequence[Finding]], None],
        *,
        of: str,
    ) -> Mapping[str, Any]:
        """Read, run and compare one model.onnx; return what the parts know of it."""

        def every(found: Sequence[Finding]) -> None:
            show(title, found)

        known: dict[str, Any] = {}
        libraries = self._all(parts(request.parts, of=of), model, folder, every, known)
        if libraries is not None and (other := self._other_environment(request, every)):
            steps = run_parts(request.parts, libraries, of=of, own=known["own"])
            self._all(steps, model, folder / other, every, {}, server=server_name("ort", other))
        return known

    def _all(
        self,
        steps: Parts,
        model: str,
        folder: Path,
        show: Callable[[Sequence[Finding]], None],
        known: dict[str, Any],
        *,
        server: str = SERVER,
    ) -> tuple[str, ...] | None:
        """Run parts, show their findings, and add what they know to `known`."""
        result: Result | None = None
        while True:
            try:
                part = next(steps) if result is None else steps.send(result)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # the type of a generator's result is lost here
            if isinstance(part, Link):
                result = self._link(part.operators)
                show(result.findings)
                continue
            result = self._part(part.name, model, folder, *part.options, server=server)
            if part.name == "run" and result.killed:
                result = self._as_it_is(result, part, model, folder, server)
            known |= result.known
            show([*self._with_replay(result, part), *_deaths(result, part)])

    def _as_it_is(self, dead: Result, part: PartCall, model: str, folder: Path, server: str) -> Result:
        """Return the result of a run that died, without the optimised graph; if that dies as well, the first one."""
        (folder / "done").unlink(missing_ok=True)
        again = self._part("run", model, folder, *part.options, "--died", f"the process {dead.died}", server=server)
        return dead if again.died else again

    def _with_replay(self, result: Result, part: PartCall) -> list[Finding]:
        """Return the findings, the first node with the command that checks it alone."""
        alone = result.known.get("alone")
        command = f" It alone: {self._command} {shlex.quote(self._shown(alone))}" if alone else ""
        return [
            replace(f, remedy=f.remedy + command) if part.name == "compare" and f.mark == "wrong" else f
            for f in result.findings
        ]

    def _other_environment(self, request: CheckRequest, show: Callable[[Sequence[Finding]], None]) -> str:
        """Return the environment of the ONNX Runtime of --ort, or "": it is the installed one or not installed."""
        version = minor(request.ort)
        if not version or version == minor(installed().onnxruntime):
            return ""
        name = f"ort{version}"
        if self._paths.python(name).is_file():
            return name
        make = f"Make it, and it will be: python -m opmatrix environment {name}" if version in rows().ort else ""
        text = f"not run in ONNX Runtime {version}, of which there is no environment"
        show([Finding(question="runs", mark="note", text=text, remedy=make)])
        return ""

    def _link(self, names: Sequence[str]) -> Result:
        """Link operators that share a domain into one library."""
        log = self._paths.log(f"link-together:{self._paths.combined_folder(names).name}")
        of_step = step_limits(self._paths)
        with self._linking:  # models that need the same operators
            ending = self.run(["link-together", *names], log, seconds=of_step.seconds, megabytes=of_step.megabytes)
        if ending.done:
            return Result()
        died = read_output(log) or self._failure(ending, log, of_step)
        return Result(findings=[finding.wrong("libraries", died)], died=died)

    def _part(self, part: str, model: str, folder: Path, *options: str, server: str | None = None) -> Result:
        """Run one part in a server, None: the light one, unless its results are there. Raises UsageError if it cannot
        read the model. A part without results has died, with any exit code."""
        path = folder / f"{part}.json"
        relative = folder.relative_to(self._paths.model_check(""))
        label, limited = relative.parts[0], self._limits[relative.parts[0]]
        arguments = [f"check-{part}", model, "--into", str(folder), *options]
        log = self._paths.log(f"check:{relative.as_posix().replace('/', '-')}-{part}")
        died, ours, stopped, killed = "", False, False, False
        if server != SERVER or not path.is_file():
            path.unlink(missing_ok=True)
            self.doing = f"check-{part} of {self._shown(model)}"
            if label in self._over:
                ending, log = self._over[label]
            else:
                seconds = max(0.0, self._until[label] - time.monotonic())
                known_limit = ["--seconds", f"{seconds:.1f}"] if part in ("run", "compare") else []
                ending = self.run([*arguments, *known_limit], log, server, seconds=seconds, megabytes=limited.megabytes)
            died = "" if ending.done else self._failure(ending, log, limited, arguments)
            ours, stopped = (
                ending.done or not death_message(ending, seconds=limited.seconds, megabytes=limited.megabytes),
                bool(ending.stopped),
            )
            killed = ending.status < 0 and not stopped
        try:
            findings, known = finding.read(path)
        except (FileNotFoundError, ValueError):
            died = died or self._described("left no answer", log, arguments)
            return Result(died=died, ours=ours, stopped=stopped, killed=killed)
        if error := known.get("error"):
            raise UsageError(error)
        if not findings and not known.get("cells") and "judged" not in known:  # there may be no node to compare
            died = died or self._described("answered nothing", log, arguments)
        return Result(findings=findings, known=known, died=died, ours=ours, stopped=stopped, killed=killed)

    def run(
        self, arguments: Sequence[str], log: Path, server: str | None = None, *, seconds: float, megabytes: float
    ) -> Ending:
        return self._pool.run(arguments, server=server, log=log, seconds=seconds, megabytes=megabytes, written=math.inf)

    def _failure(self, ending: Ending, log: Path, limited: StepLimits, arguments: Sequence[str] = ()) -> str:
        """Return how a process failed, its log, and the command that runs it again."""
        died = death_message(ending, seconds=limited.seconds, megabytes=limited.megabytes)
        if option := {"time": "--seconds", "memory": "--megabytes"}.get(ending.stopped):
            died += f"; {option} sets the limit of a model, and --shape its sizes"
        return self._described(died or f"failed: {''.join(read_output(log).splitlines()[-1:])}", log, arguments)

    def _described(self, how: str, log: Path, arguments: Sequence[str]) -> str:
        command = shlex.join(["python", "-m", "opmatrix", *arguments])
        if not self._project:
            command = f"(cd {shlex.quote(str(self._paths.root))} && {command})"
        return f"{how}. Log: {self._shown(str(log))}" + (f". Replay: {command}" if arguments else "")

    def _shown(self, path: str) -> str:
        inside = self._project and Path(path).is_relative_to(self._paths.root)
        return str(Path(path).relative_to(self._paths.root)) if inside else path


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
