"""The parts of `doit check`, each after what it needs, and what is said where one of them dies."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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

Known = Mapping[str, Any]


class Parts:
    """Runs them in children of the light server, which import what they need: torch and ONNX Runtime never both."""

    def __init__(self, layout: Paths, asked: CheckRequest, *, lock: int, teller: FindingPrinter) -> None:
        self._layout, self._asked, self._teller = layout, asked, teller
        self._seconds, self._megabytes = step_seconds(layout), step_megabytes(layout)
        self._pool = Pool(layout, entry="opmatrix.cli:main", lock=lock)

    def __enter__(self) -> Self:
        self._pool.prepare()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.close()

    def check(self) -> None:
        """Print everything. Raises UsageError for what is no model, or no function that builds one."""
        folder = self._layout.checked(self._asked.label)
        self._teller.title(self._shown(self._asked.model))
        if not self._asked.function:
            self._model(self._asked.model, folder, of="test_data_set_0")
            return
        of = f"torch {minor(installed().torch)}"
        for cell, found in self._capture(folder).items():
            self._teller.title(f"{cell}  {self._shown(found['model'] or '')}".rstrip())
            self._teller.print(Finding(**f) for f in found["findings"])
            if found["model"]:
                self._model(found["model"], folder / cell, of=of)

    def _capture(self, folder: Path) -> dict[str, Any]:
        """Build, run and export the function's model; return what is known of each cell.

        Where an exporter takes its process along, the others have their turn in another one.
        """
        cells: dict[str, Any] = {}
        waiting = list(self._asked.exporters)
        while waiting:
            exporters = [word for e in waiting for word in ("--exporter", e)]
            findings, known, died = self._part(
                "capture", self._asked.model, folder, *exporters, "--opset", str(self._asked.opset)
            )
            cell, before = known.get("cell", ""), len(cells)
            cells |= known.get("cells", {})
            waiting = waiting[len(cells) - before :] if died and cell else []
            if died:
                text = f"while {known.get('doing', 'it began')}: {died}"
                told = Finding(question="export" if cell else "torch", mark="wrong", text=text)
                if cell:
                    cells[cell]["findings"].append(vars(told))
                else:
                    findings.append(told)
            if not before:
                self._teller.print(findings)
        notes = (Finding(question="export", mark="note", text=f"left out: {why}") for why in self._asked.left_out)
        self._teller.print(notes)
        return cells

    def _model(self, model: str, folder: Path, *, of: str) -> None:
        """Read, run and compare one model.onnx."""
        ort = ["--ort", self._asked.ort] if self._asked.ort else []
        findings, known, died = self._part("read", model, folder, *ort)
        self._teller.print([*findings, *_death("nodes", died)])
        wrong = {f.question for f in findings if f.mark == "wrong"}
        if died or "libraries" in wrong:
            return
        if not all(self._link(names) for names in known["link"]):
            return
        options = [word for path in known["libraries"] for word in ("--library", path)]
        options += [*self._asked.inputs, *self._asked.tolerance]
        self._runs(model, folder, *options, of=of, own=known["own"])
        if "versions" not in wrong and (server := self._elsewhere()):
            into = folder / server.partition("@")[2]
            self._runs(model, into, *options, of=of, own=known["own"], server=server)

    def _runs(self, model: str, folder: Path, *options: str, of: str, own: bool, server: str | None = None) -> None:
        """Run a model, and compare its values node by node, in the installed ONNX Runtime or in that of a server."""
        findings, known, died = self._part("run", model, folder, *options, "--of", of, server=server)
        self._teller.print([*findings, *_death("runs", died)])
        agrees = not died and known["agrees"]
        if died or not known["ran"] or (agrees and not own):
            return
        # torch and ONNX Runtime share a kernel: that they agree says nothing of it.
        more = ["--own"] if agrees else ["--differs"] if known["differs"] else []
        findings, _, died = self._part("compare", model, folder, *options, *more, server=server)
        self._teller.print([*findings, *_death("first node", died)])

    def _elsewhere(self) -> str:
        """Return the server of another ONNX Runtime that was asked for, where its environment is made."""
        version = minor(self._asked.ort)
        if not version or version == minor(installed().onnxruntime):
            return ""
        name = f"ort{version}"
        if self._layout.python(name).is_file():
            return f"ort@{name}"
        make = f"Make it, and it will be: python -m opmatrix environment {name}" if version in ORT else ""
        text = f"not run in ONNX Runtime {version}, of which there is no environment"
        self._teller.print([Finding(question="runs", mark="note", text=text, remedy=make)])
        return ""

    def _link(self, names: Sequence[str]) -> bool:
        """Link one library of operators that share a domain; return whether there is one."""
        log = self._layout.log(f"link-together:{self._layout.combined(names).name}")
        ending = self._run(["link-together", *names], log)
        if ending.status:
            said = read_output(log) or self._end(ending, log)
            self._teller.print([Finding(question="libraries", mark="wrong", text=said)])
        return not ending.status

    def _part(
        self, part: str, model: str, folder: Path, *options: str, server: str | None = None
    ) -> tuple[list[Finding], Known, str]:
        """Run one part, in the light server or another; return its findings, what else it knows, and how it died.

        Raises UsageError with what the part says of a model that is none.
        """
        path = folder / f"{part}.json"
        path.unlink(missing_ok=True)
        log = self._layout.log(
            f"check:{folder.relative_to(self._layout.checked('')).as_posix().replace('/', '-')}-{part}"
        )
        arguments = [f"check-{part}", model, "--into", str(folder), *options]
        ending = self._run(arguments, log, server)
        died = self._end(ending, log, arguments) if ending.status else ""
        try:
            findings, known = finding.read(path)
        except FileNotFoundError:
            return [], {}, died
        if error := known.get("error"):
            raise UsageError(error)
        return findings, known, died

    def _run(self, arguments: Sequence[str], log: Path, server: str | None = None) -> Ending:
        return self._pool.run(arguments, server=server, log=log, seconds=self._seconds, megabytes=self._megabytes)

    def _end(self, ending: Ending, log: Path, arguments: Sequence[str] = ()) -> str:
        """Return how a process ended that did not end well, and where more is to be read."""
        died = death_message(ending, seconds=self._seconds, megabytes=self._megabytes)
        how = died or f"failed: {''.join(read_output(log).splitlines()[-1:])}"
        replay = f". Replay: {shlex.join(['python', '-m', 'opmatrix', *arguments])}" if arguments else ""
        return f"{how}. Log: {self._shown(str(log))}{replay}"

    def _shown(self, path: str) -> str:
        inside = Path(path).is_relative_to(self._layout.root)
        return str(Path(path).relative_to(self._layout.root)) if inside else path


def _death(question: str, died: str) -> list[Finding]:
    return [Finding(question=question, mark="wrong", text=f"the process {died}")] if died else []
