"""The stages of this feature, which `python -m opmatrix` runs: see `opmatrix.commands.stages`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from opmatrix.commands.stages import Stage, argument, flag, run_stage
from opmatrix.project.cells import TORCH_EXPORTERS
from opmatrix.project.paths import Paths

_MODEL = argument("model", "a model.onnx", type=Path)
_INTO = argument("--into", "a folder for what is found", type=Path, required=True)
_LIBRARIES = argument(
    "--library", "a custom-op library", dest="libraries", metavar="LIBRARY", action="append", type=Path, default=[]
)
_SESSION = (
    _LIBRARIES,
    argument("--inputs", "a .npz file, or a folder of test data sets", type=Path),
    argument("--shape", "of a random input: NAME=1,3,48,192", dest="shapes", metavar="SHAPE", action="append",
              default=[]),
    argument("--against", "a model whose values are the expected ones", type=Path),
    argument("--rtol", type=float),
    argument("--atol", type=float),
    argument("--seconds", "that the model has left", type=float),
)  # fmt: skip


def _within(stage: str, paths: Paths, *, seconds: float | None, **options: Any) -> None:
    """Run a stage within the seconds that its model has left."""
    from opmatrix.addons.check import parts  # only a stage that runs needs it

    if seconds:
        parts.begin(seconds)
    import_module(f"opmatrix.addons.check.{stage}").run(paths, **options)


def _check_models(_: Paths, *, jobs: Path) -> None:
    """Write the results of each part, as the part alone does, and then the file `done` into the folder of each model.

    It takes models that no other process has taken, and lists their folders. SIGALRM ends it at the time limit of a
    model.
    """
    from opmatrix.addons.check import parts  # only this stage needs them

    with jobs.with_suffix(".taken").open("w", buffering=1, encoding="utf-8") as listed:
        taken = filter(parts.take, json.loads(jobs.read_text(encoding="utf-8")))
        for job in islice(taken, parts.TOGETHER):
            listed.write(f"{Path(job['folder']).name}\n")
            with parts.ends_after(job["seconds"]):
                is_done = _check_model(job)
            if is_done:
                (Path(job["folder"]) / "done").touch()


def _check_model(job: Mapping[str, Any]) -> bool:
    """Return whether all parts of a model ran: one whose operators must be linked first stays undone."""
    from opmatrix.addons.check.parts import Link, PartCall, PartOptions, Result, parts
    from opmatrix.basics import finding

    unlinked: list[Link] = []

    def do(part: PartCall | Link) -> Result:
        if isinstance(part, Link):
            unlinked.append(part)
            return Result(died="was not begun")
        run_stage([f"check-{part.name}", job["model"], "--into", job["folder"], *part.options])
        findings, facts = finding.read(Path(job["folder"]) / f"{part.name}.json")
        return Result(findings=findings, facts=facts, died=facts.get("error", ""))

    parts(do, PartOptions(**{name: tuple(words) for name, words in job["options"].items()}), of=job["of"])
    return not unlinked


STAGES: Mapping[str, Stage] = {
    "check-capture": (
        "build, run and export a user's torch model",
        argument("target", "module:function or file.py:function", metavar="model"),
        _INTO,
        argument("--exporter", dest="exporters", action="append", choices=TORCH_EXPORTERS, required=True),
        argument("--opset", type=int, required=True),
    ),
    "check-read": (
        "compare a model with the declarations, without running it",
        _MODEL,
        _INTO,
        argument("--ort", "another version of ONNX Runtime, which need not be installed", default=""),
        _LIBRARIES,
    ),
    "check-models": (
        "run check-read, check-run and check-compare on several models in one process",
        argument("jobs", "a JSON file of the models, their folders and options", type=Path),
    ),
    "check-run": (
        "run a model in ONNX Runtime",
        _MODEL,
        _INTO,
        argument("--of", "the origin of the expected outputs, for messages", default=""),
        argument("--died", "how a process died with the optimised graph: leave that out", default=""),
        *_SESSION,
    ),
    "check-compare": (
        "name the first node that differs from its reference",
        _MODEL,
        _INTO,
        flag("--differs", "the outputs are known to be wrong"),
        flag("--own", "only the nodes of this project's operators"),
        *_SESSION,
    ),
}
SPECIAL: Mapping[str, Callable[..., None]] = {
    "check-models": _check_models,
    "check-run": partial(_within, "run"),
    "check-compare": partial(_within, "compare"),
}
ONLY_WRITE: tuple[str, ...] = ()
