"""Run the parts of `doit check` on a model in this process, as check-models does, and judge their findings."""

from __future__ import annotations

import json
import shutil
from contextlib import chdir
from dataclasses import asdict, dataclass
from pathlib import Path

from onnx import ModelProto, parser

from opmatrix.addons.check import parts as outcome
from opmatrix.addons.check import stages
from opmatrix.addons.check.parts import PartOptions
from opmatrix.basics import finding
from opmatrix.basics.finding import Finding
from opmatrix.project.paths import Paths
from opmatrix.project.settings import FORMAT


@dataclass(frozen=True)
class Judged:
    """The outcome of a model and its reason, and all findings."""

    outcome: str
    reason: str
    findings: list[Finding]

    def said(self, mark: str) -> str:
        """Return the findings with a mark, a line each."""
        return "\n".join(f"{f.question}: {f}" for f in self.findings if f.mark == mark)

    def is_said(self, start: str, *words: str) -> None:
        """Assert how the outcome with its reason begins, and words of ``reason: ``, or of a mark, such as ``note: ``;
        after ``no note: `` those that it does not have, or nothing, where no finding has the mark."""
        assert f"{self.outcome}: {self.reason}\n".startswith(start), self
        assert self.outcome != "right" or not self.said("wrong"), self
        for where, _, text in (one.partition(": ") for one in words):
            mark = where.removeprefix("no ")
            found = self.reason if mark == "reason" else self.said(mark)
            assert (found != "" and text in found) == (mark == where), self


def model_text(
    graph: str,
    *functions: str,
    inputs: str = "float[3] x",
    outputs: str = "float[3] y",
    constants: str = "",
    opset: int = 17,
    imports: str = '"loc":1',
) -> str:
    """Return the text of a model; a function is ``name <attributes> (inputs) => (outputs) {...}`` in the domain loc, or
    has its header."""
    own = f'<domain: "loc", opset_import: ["":{opset}, "loc":1]> '
    head = (
        f'<ir_version: 10, opset_import: ["":{opset}, {imports}]> g ({inputs}) => ({outputs}) {constants} {{ {graph} }}'
    )
    return "\n".join([head, *(one if one.startswith("<") else own + one for one in functions)])


def judged(made: ModelProto | str | bytes | Path, folder: Path, options: PartOptions | None = None) -> Judged:
    """Check a model, its text, its bytes or its file in a folder without operators."""
    path = made if isinstance(made, Path) else folder / "model.onnx"
    if isinstance(made, str):
        made = parser.parse_model(made)
    if not isinstance(made, Path):
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
    (folder / "dodo.py").touch()
    (folder / "pyproject.toml").write_text(f"[tool.opmatrix]\nformat = {FORMAT}\n")
    into = folder / "into"
    shutil.rmtree(into, ignore_errors=True)
    given = asdict(options or PartOptions())
    job = {"model": str(path), "folder": str(into), "options": given, "of": "", "seconds": 0}
    (folder / "jobs.json").write_text(json.dumps([job]))
    with chdir(folder):
        stages._check_models(Paths(folder), jobs=folder / "jobs.json")
    findings: list[Finding] = []
    known = {}
    for part in ("read", "run", "compare"):
        if (into / f"{part}.json").is_file():
            found, more = finding.read(into / f"{part}.json")
            findings += found
            known |= more
            if more.get("error"):
                return Judged("unreadable", more["error"], findings)
    return Judged(*outcome.judge(findings, known), findings)
