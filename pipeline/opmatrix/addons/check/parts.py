"""The parts of `doit check` on one model.onnx: which part runs after which result, within which limits, and the outcome
of all. `run_parts` runs each in a process of its own, the stage check-models those of many models in one process.
Imports no framework."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from opmatrix.basics.errors import many
from opmatrix.basics.finding import CHECK, OPTIMIZER, Finding

SECONDS = 120.0  # over all processes of a model
NODE_SECONDS = 20.0  # CPU seconds of the comparison of one node
MEGABYTES, TIMES = 4000.0, 4  # of memory, or so many times the model if that is more
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
    facts: Mapping[str, Any] = field(default_factory=dict)
    died: str = ""
    ours: bool = False
    killed: bool = False
    stopped: bool = False

    def wrong(self) -> set[str]:
        return {f.question for f in self.findings if f.mark == "wrong"}


Do = Callable[[PartCall | Link], Result]


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


def parts(do: Do, options: PartOptions, *, of: str) -> tuple[str, ...] | None:
    """Do the parts of one model. Returns the libraries as options, for another ONNX Runtime, or None where the model
    cannot be run."""
    read = do(PartCall(name="read", options=(*options.ort, *options.libraries)))
    if read.died or "libraries" in read.wrong():
        return None
    if any(do(Link(operators=tuple(names))).died for names in read.facts["link"]):
        return None
    libraries = tuple(word for path in read.facts["libraries"] for word in ("--library", path))
    run_parts(do, options, libraries, of=of, own=read.facts["own"])
    return None if "versions" in read.wrong() else libraries


def run_parts(do: Do, options: PartOptions, libraries: Sequence[str], *, of: str, own: bool) -> None:
    """Run a model, and compare it node by node."""
    session = (*libraries, *options.tolerance, *options.against)
    run = do(PartCall(name="run", options=(*session, *options.inputs, *options.shapes, "--of", of)))
    if run.died or not run.facts["ran"] or (run.facts["agrees"] and not own and not options.against):
        return
    # torch and ONNX Runtime share the kernels, so equal outputs do not test a kernel. A model that agrees with its
    # original may still compute other inner values.
    more = ("--own",) if run.facts["agrees"] else ("--differs",) if run.facts["differs"] else ()
    inputs = ("--inputs", run.facts["inputs"]) if run.facts["inputs"] else ()
    shapes = tuple(word for shape in run.facts["shapes"] for word in ("--shape", shape))
    do(PartCall(name="compare", options=(*session, *(inputs or shapes), *more)))


_until = math.inf


def begin(seconds: float) -> None:
    """Let this process know how many seconds its model has left; 0: no limit."""
    global _until
    _until = time.monotonic() + seconds if seconds else math.inf


def seconds_left() -> float:
    """Return how many seconds the model has left."""
    return _until - time.monotonic()


@contextmanager
def ends_after(seconds: float) -> Iterator[None]:
    """End this process by SIGALRM where the block takes longer, also in a kernel; 0 sets no limit."""
    begin(seconds)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        begin(0)


def default_megabytes(model: Path) -> float:
    """Return the limit of a model by its size, with the files next to it that it names, such as its weights."""
    size = model.stat().st_size
    if large := [path for path in _large_files(model.parent) if path != model]:
        content = model.read_bytes()
        size += sum(path.stat().st_size for path in large if path.name.encode() in content)
    return max(MEGABYTES, TIMES * size / 1e6)


@cache
def _large_files(folder: Path) -> list[Path]:
    """Return the files that count beside MEGABYTES, but for models."""
    files = (path for path in folder.iterdir() if path.suffix != ".onnx" and path.is_file())
    return [path for path in files if path.stat().st_size > MEGABYTES * 1e6 / TIMES / 100]


Outcome = Literal["right", "wrong", "disagree", "unknown", "unsupported", "unreadable"]
"""`disagree`: the implementations do, and none is known to be wrong. `unknown`: there is nothing to compare the outputs
or a node with, or opmatrix fails. `unsupported`: ONNX Runtime does not implement a node."""
OUTCOMES: tuple[Outcome, ...] = ("right", "wrong", "disagree", "unknown", "unsupported", "unreadable")


def judge(findings: Sequence[Finding], facts: Mapping[str, Any]) -> tuple[Outcome, str]:
    """Return the outcome and its reason. `facts`: what the parts of the check wrote beside their findings."""
    ours = [f for f in findings if f.mark == "wrong" and f.question == CHECK]
    wrong = [f for f in findings if f.mark == "wrong" and f.question != CHECK]
    notes = [f for f in findings if f.mark == "note"]
    if wrong:
        of_ort = {OPTIMIZER, "runs"} if facts.get("missing") else {OPTIMIZER}
        if all(f.question in of_ort for f in wrong):
            agreement = "" if facts.get("skipped") or facts.get("disputed") else _agreement(findings)
            how = "As it is" if wrong[0].question == OPTIMIZER else "With its functions inlined"
            return "unsupported", f"{wrong[0]}{f'. {how}, it agrees {agreement}' if agreement else ''}"
        chosen = next((f for f in wrong if f.question == "first node"), wrong[0])
        return "wrong", f"{chosen.question}: {chosen}"
    if ours:
        return "unknown", str(ours[0])
    if facts.get("random"):
        return "unknown", next(str(f) for f in notes if f.question == "agrees")
    if facts.get("disputed"):
        return "disagree", next(str(f) for f in notes if f.question == "agrees")
    if facts.get("agrees") and not facts.get("skipped"):
        return "right", _agreement(findings)
    if facts.get("skipped") or not facts.get("judged"):
        return "unknown", next((str(f) for f in notes if f.question == "agrees"), "nothing to compare with")
    return "right", _agreement(findings) or f"{many(facts['judged'], 'node')} compared"


def _agreement(findings: Sequence[Finding]) -> str:
    return next((str(f) for f in findings if f.question == "agrees" and f.mark == "ok"), "")
