"""A step: one unit of work, run again only when its inputs or its configuration change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from opmatrix.project.work_folder import WRITTEN

if TYPE_CHECKING:  # not needed to run a step
    from opmatrix.project.cells import Cell
    from opmatrix.spec import Lowering

Server = Literal["onnx", "torch", "export", "ort"]
JOINT = "compare-exports"  # the command of a joint step


class Fingerprint(str):
    """A digest whose `explain` returns, as JSON, the data that was hashed. `doit why` prints it."""

    explain: Callable[[], str]

    def __new__(cls, digest: str, explain: Callable[[], str]) -> Fingerprint:
        fingerprint = super().__new__(cls, digest)
        fingerprint.explain = explain
        return fingerprint


class Config(str):
    """The configuration of a step as a string, with the fingerprints in it. The cached plan has only the string."""

    fingerprints: tuple[Fingerprint, ...]

    def __new__(cls, text: str, fingerprints: tuple[Fingerprint, ...]) -> Config:
        config = super().__new__(cls, text)
        config.fingerprints = fingerprints
        return config


class CheckKey(NamedTuple):
    """The key of a check record. `check` is a part of register, "cases", "agreement", "declaration", or a group of
    steps."""

    op: str
    check: str
    lowering: Lowering | None = None
    torch: str | None = None

    def __str__(self) -> str:
        name = "-".join(filter(None, (self.op, self.lowering, self.check)))
        return f"{name}@torch{self.torch}" if self.torch else name


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step. `opmatrix.plan.steps` plans it, `opmatrix.engine` runs it.

    `operator`, `lowering` and `cell`: what the step is for; unset where it is for several.
    `command`: what follows ``python -m opmatrix``, so that every step can be run by hand.
    `asks`: further arguments, which select what the step prints but not what it writes. A change does not rerun it.
    `reads` and `writes`: files, as strings because doit takes strings and each command handles thousands.
    `links`: symbolic links that the step makes; where they point to counts, not what is there.
    `config`: all else that the result depends on, as a string: fields of the declaration, versions, flags.
    `declared`: the files from which part of `config` was read; the step reads them again.
    `discovered_inputs`: a file that lists further inputs, one path per line, like ninja's depfile. The step writes it;
    for the report, the engine does before the step runs.
    `after`: tasks that must succeed before, besides those that write one of `reads`.
    `server`: the set of preloaded imports that the step is forked from; None forks it from doit itself.
    `environment`: the environment whose Python runs the step, such as "torch2.9"; None is the main one.
    `verdict`: the file that gets the outcome of a step that dies, for the report: the verdict of its cell, or, without
    a cell, the record of `check` (without one: of the check that has the name of its group).
    `seconds`: the time limit. `megabytes`: the memory limit of the step and its child processes together.
    `written`: how many megabytes they may write.
    """

    group: str
    name: str
    command: tuple[str, ...]
    operator: str = ""
    lowering: Lowering | None = None
    cell: Cell | None = None
    check: CheckKey | None = None
    asks: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    config: str = ""
    declared: tuple[str, ...] = ()
    discovered_inputs: str | None = None
    after: tuple[str, ...] = ()
    server: Server | None = None
    environment: str | None = None
    verdict: str | None = None
    seconds: float = 300
    megabytes: float = 8000
    written: float = WRITTEN

    @property
    def server_name(self) -> str | None:
        """The server of the environment: ``export@torch2.9``, or ``export`` of the main one."""
        return server_name(self.server, self.environment) if self.server else None

    @property
    def is_joint(self) -> bool:
        """Whether it compares the exports of all cells, so that no part of a run can make it: the run that joins the
        parts does."""
        return self.command[0] == JOINT

    @property
    def records(self) -> tuple[str, ...]:
        """The files that state what the step found or made: its verdict, and the JSON files that it writes, such as a
        manifest. None exists while the step runs, so that none outlives a failure."""
        written = (path for path in self.writes if path.endswith(".json"))
        return tuple(dict.fromkeys([*([self.verdict] if self.verdict else []), *written]))

    @property
    def task(self) -> str:
        """The name of the doit task: ``verify:group_norm-custom@torch2.13-dynamo-opset18-ort1.31``."""
        return f"{self.group}:{self.name}" if self.name else self.group


class TaskName(NamedTuple):
    """What the name of a task says, where there is no step: in the state database are steps of earlier plans.

    Of ``register:nms-kernel@torch2.13``: "register", "nms-kernel" and "torch2.13". `subject` begins with the operator;
    of a step of no operator, it is an environment, or a kind of wheel. `where` is "" for a step that no cell needs.
    """

    group: str
    subject: str
    where: str

    @property
    def operator(self) -> str:
        return self.subject.partition("-")[0]


def read_name(task: str) -> TaskName:
    """Return the parts of `Step.task`."""
    group, _, name = task.partition(":")
    subject, _, where = name.partition("@")
    return TaskName(group, subject, where)


def server_name(server: str, environment: str | None) -> str:
    return f"{server}@{environment}" if environment else server


def read_server_name(name: str) -> tuple[str, str]:
    """Return the arguments of `server_name`, "" for the main environment."""
    server, _, environment = name.partition("@")
    return server, environment


def cell_step_name(group: str, operator: str, lowering: Lowering, cell: Cell) -> str:
    """Return the name of the step of one cell; an export step depends on no ONNX Runtime version."""
    return f"{operator}-{lowering}@{cell.export_name if group == 'export' else cell}"
