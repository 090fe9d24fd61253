"""The order of the parts of `doit check` on one model.onnx: which part runs after which result. Imports no framework.

Who runs the parts sends each result into the generator: `opmatrix.commands.check_run` in processes of their own, and
the stage check-models, which runs the parts of many models in one process.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from opmatrix.model_check.finding import Finding

TOGETHER = 32  # models whose parts run in one process
Name = Literal["read", "run", "compare"]


@dataclass(frozen=True, kw_only=True)
class PartCall:
    """One part, and its options on the command line beside the model and the folder."""

    name: Name
    options: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Link:
    """Operators that share a domain are to be linked into one library."""

    operators: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a part wrote, and how it died. A `Link` that failed has died. `ours`: by an exception of opmatrix, which
    says nothing about the model. `killed`: by a signal. `stopped`: at a limit."""

    findings: Sequence[Finding] = ()
    known: Mapping[str, Any] = field(default_factory=dict)
    died: str = ""
    ours: bool = False
    killed: bool = False
    stopped: bool = False

    def wrong(self) -> set[str]:
        return {f.question for f in self.findings if f.mark == "wrong"}


Parts = Generator[PartCall | Link, Result, tuple[str, ...] | None]


@dataclass(frozen=True, kw_only=True)
class PartOptions:
    """The options of the command line, as words of that of the parts."""

    ort: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    tolerance: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


def take(job: Mapping[str, Any]) -> bool:
    """Make the folder of a model, and return whether no other process had made it."""
    try:
        Path(job["folder"]).mkdir(parents=True)
    except FileExistsError:
        return False
    return True


def parts(options: PartOptions, *, of: str) -> Parts:
    """Yield the parts of one model. Returns the libraries as options, for another ONNX Runtime, or None where the model
    cannot be run."""
    read = yield PartCall(name="read", options=(*options.ort, *options.libraries))
    if read.died or "libraries" in read.wrong():
        return None
    for names in read.known["link"]:
        if (yield Link(operators=tuple(names))).died:
            return None
    libraries = tuple(word for path in read.known["libraries"] for word in ("--library", path))
    yield from run_parts(options, libraries, of=of, own=read.known["own"])
    return None if "versions" in read.wrong() else libraries


def run_parts(options: PartOptions, libraries: Sequence[str], *, of: str, own: bool) -> Parts:
    """Yield the parts that run a model and compare it node by node."""
    session = (*libraries, *options.tolerance, *options.against)
    run = yield PartCall(name="run", options=(*session, *options.inputs, *options.shapes, "--of", of))
    if run.died or not run.known["ran"] or (run.known["agrees"] and not own and not options.against):
        return None
    # torch and ONNX Runtime share the kernels, so equal outputs do not test a kernel. A model that agrees with its
    # original may still compute other inner values.
    more = ("--own",) if run.known["agrees"] else ("--differs",) if run.known["differs"] else ()
    inputs = ("--inputs", run.known["inputs"]) if run.known["inputs"] else ()
    shapes = tuple(word for shape in run.known["shapes"] for word in ("--shape", shape))
    yield PartCall(name="compare", options=(*session, *(inputs or shapes), *more))
    return None
