"""Run the parts of `doit check` in order, each in its own process, and print a finding for one that dies."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from opmatrix.engine.server_pool import Ending, Pool
from opmatrix.engine.step_failure import death_message, read_output
from opmatrix.errors import UsageError
from opmatrix.matrix.cells import ORT
from opmatrix.model_check import finding
from opmatrix.model_check.arguments import CheckRequest
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.print_findings import FindingPrinter
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed, step_megabytes, step_seconds
from opmatrix.version import minor


class ModelCheck:
    """The check of one model or function. Each part is a child of the light server and imports what it needs, torch or
    ONNX Runtime, never both."""

    def __init__(self, paths: Paths, request: CheckRequest, *, lock: int, printer: FindingPrinter) -> None:
        self._paths, self._request, self._printer = paths, request, printer
        self._seconds, self._megabytes = step_seconds(paths), step_megabytes(paths)
        self._pool = Pool(paths, entry="opmatrix.cli:main", lock=lock)

    def run(self) -> None:
        """Print all findings. Raises UsageError for a file that is no model or a function that returns none."""
        with closing(self._pool):
            self._pool.prepare()
            self._check()
        if not self._printer.counts["ok"] and not self._printer.counts["wrong"]:
            self._printer.print([finding.wrong("check", "nothing was checked, so nothing is known of it")])

    def _check(self) -> None:
        folder = self._paths.model_check(self._request.label)
        self._printer.title(self._shown(self._request.model))
        if not self._request.function:
            self._model(self._request.model, folder, of="test_data_set_0")
            return
        of = f"torch {minor(installed().torch)}"
        for cell, found in self._capture(folder).items():
            self._printer.title(f"{cell}  {self._shown(found['model'] or '')}".rstrip())
            self._printer.print(Finding(**f) for f in found["findings"])
            if found["model"]:
                self._model(found["model"], folder / cell, of=of)

    def _capture(self, folder: Path) -> dict[str, Any]:
        """Build, run and export the function's model; return the findings and the model of each cell. After an exporter
        that kills its process, run the remaining ones in another."""
        cells: dict[str, Any] = {}
        remaining = list(self._request.exporters)
        while remaining:
            exporters = [word for e in remaining for word in ("--exporter", e)]
            findings, known, died = self._part(
                "capture", self._request.model, folder, *exporters, "--opset", str(self._request.opset)
            )
            cell, before = known.get("cell", ""), len(cells)
            cells |= known.get("cells", {})
            remaining = remaining[len(cells) - before :] if died and cell else []
            if died:
                crash = finding.wrong("export" if cell else "torch", f"while {known.get('doing', 'it began')}: {died}")
                if cell:
                    cells[cell]["findings"].append(vars(crash))
                else:
                    findings.append(crash)
            if not before:
                self._printer.print(findings)
        self._printer.print(finding.note("export", f"left out: {why}") for why in self._request.left_out)
        return cells

    def _model(self, model: str, folder: Path, *, of: str) -> None:
        """Read, run and compare one model.onnx."""
        ort = ["--ort", self._request.ort] if self._request.ort else []
        findings, known, died = self._part("read", model, folder, *ort)
        self._printer.print([*findings, *_death("nodes", died)])
        wrong = {f.question for f in findings if f.mark == "wrong"}
        if died or "libraries" in wrong:
            return
        if not all(self._link(names) for names in known["link"]):
            return
        options = [word for path in known["libraries"] for word in ("--library", path)]
        options += [*self._request.inputs, *self._request.tolerance]
        self._run_model(model, folder, *options, of=of, own=known["own"])
        if "versions" not in wrong and (server := self._server_of_version()):
            into = folder / server.partition("@")[2]
            self._run_model(model, into, *options, of=of, own=known["own"], server=server)

    def _run_model(
        self, model: str, folder: Path, *options: str, of: str, own: bool, server: str | None = None
    ) -> None:
        """Run a model in the ONNX Runtime of a server and compare it node by node. None: the installed one."""
        findings, known, died = self._part("run", model, folder, *options, "--of", of, server=server)
        self._printer.print([*findings, *_death("runs", died)])
        agrees = not died and known["agrees"]
        if died or not known["ran"] or (agrees and not own):
            return
        # torch and ONNX Runtime share the kernels, so equal outputs do not test a kernel.
        more = ["--own"] if agrees else ["--differs"] if known["differs"] else []
        findings, _, died = self._part("compare", model, folder, *options, *more, server=server)
        self._printer.print([*findings, *_death("first node", died)])

    def _server_of_version(self) -> str:
        """Return the server of the ONNX Runtime of --ort, or nothing: it is the installed one or not installed."""
        version = minor(self._request.ort)
        if not version or version == minor(installed().onnxruntime):
            return ""
        name = f"ort{version}"
        if self._paths.python(name).is_file():
            return f"ort@{name}"
        make = f"Make it, and it will be: python -m opmatrix environment {name}" if version in ORT else ""
        text = f"not run in ONNX Runtime {version}, of which there is no environment"
        self._printer.print([Finding(question="runs", mark="note", text=text, remedy=make)])
        return ""

    def _link(self, names: Sequence[str]) -> bool:
        """Link operators that share a domain into one library; return whether that succeeded."""
        log = self._paths.log(f"link-together:{self._paths.combined_folder(names).name}")
        ending = self._run(["link-together", *names], log)
        if not ending.done:
            self._printer.print([finding.wrong("libraries", read_output(log) or self._failure(ending, log))])
        return ending.done

    def _part(
        self, part: str, model: str, folder: Path, *options: str, server: str | None = None
    ) -> tuple[list[Finding], Mapping[str, Any], str]:
        """Run one part in a server, None: the light one; return its findings, its other results, and how it died.
        Raises UsageError if it cannot read the model. A part without results has died, with any exit code."""
        path = folder / f"{part}.json"
        path.unlink(missing_ok=True)
        log = self._paths.log(
            f"check:{folder.relative_to(self._paths.model_check('')).as_posix().replace('/', '-')}-{part}"
        )
        arguments = [f"check-{part}", model, "--into", str(folder), *options]
        ending = self._run(arguments, log, server)
        died = "" if ending.done else self._failure(ending, log, arguments)
        try:
            findings, known = finding.read(path)
        except (FileNotFoundError, ValueError):
            return [], {}, died or self._described("left no answer", log, arguments)
        if error := known.get("error"):
            raise UsageError(error)
        if not findings and not known.get("cells"):
            died = died or self._described("answered nothing", log, arguments)
        return findings, known, died

    def _run(self, arguments: Sequence[str], log: Path, server: str | None = None) -> Ending:
        return self._pool.run(arguments, server=server, log=log, seconds=self._seconds, megabytes=self._megabytes)

    def _failure(self, ending: Ending, log: Path, arguments: Sequence[str] = ()) -> str:
        """Return how a process failed, its log, and the command that runs it again."""
        died = death_message(ending, seconds=self._seconds, megabytes=self._megabytes)
        return self._described(died or f"failed: {''.join(read_output(log).splitlines()[-1:])}", log, arguments)

    def _described(self, how: str, log: Path, arguments: Sequence[str]) -> str:
        replay = f". Replay: {shlex.join(['python', '-m', 'opmatrix', *arguments])}" if arguments else ""
        return f"{how}. Log: {self._shown(str(log))}{replay}"

    def _shown(self, path: str) -> str:
        inside = Path(path).is_relative_to(self._paths.root)
        return str(Path(path).relative_to(self._paths.root)) if inside else path


def _death(question: str, died: str) -> list[Finding]:
    return [finding.wrong(question, f"the process {died}")] if died else []
