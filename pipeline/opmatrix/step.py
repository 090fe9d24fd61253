"""A step: one unit of work that is repeated only when what it reads, or its configuration, has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # doit needs neither to run a step
    from opmatrix.matrix.cells import Cell
    from opmatrix.spec import Lowering

Server = Literal["onnx", "torch", "export", "ort"]


class Fingerprint(str):
    """A digest that can still say, as JSON, what it stands for. Only `doit why` asks."""

    explain: Callable[[], str]

    def __new__(cls, digest: str, explain: Callable[[], str]) -> Fingerprint:
        made = super().__new__(cls, digest)
        made.explain = explain
        return made


class Config(str):
    """The configuration of a step as text, with the fingerprints that stand in it: until it is kept as a mere text."""

    fingerprints: tuple[Fingerprint, ...]

    def __new__(cls, text: str, fingerprints: tuple[Fingerprint, ...]) -> Config:
        made = super().__new__(cls, text)
        made.fingerprints = fingerprints
        return made

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step, as `opmatrix.plan.steps` plans it and `opmatrix.engine` carries it out.

    `operator`, `lowering` and `cell` say what the step is for, as far as it is for one of each.
    `command` is what follows ``python -m opmatrix``: every step can be run by hand. `reads` and `writes` are files, as
    text: doit wants it so, and there are thousands on each command.
    `config` is everything else that the result depends on, as text: fields of the declaration, versions, flags.
    `declared` are the files that a part of it was read from, which the step reads again.
    `asks` are further arguments that choose what the step says, and nothing of what it writes: no reason to run it.
    `discovered_inputs` is a file that lists, one a line, what else the step reads: known once it has run, or as it begins.
    `after` names tasks that must have succeeded before, beyond those that write what this one reads.
    `server` names the set of imports that a step is forked from; None runs it in a plain thread. `environment` is the
    one whose Python that is, such as "torch2.9"; None is the main one.
    `verdict` is where a step that dies leaves its outcome for the report. `seconds` is its time limit,
    `megabytes` that of the memory that it and its children may use together.
    """

    group: str
    name: str
    command: tuple[str, ...]
    operator: str = ""
    lowering: Lowering | None = None
    cell: Cell | None = None
    asks: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    config: str = ""
    declared: tuple[str, ...] = ()
    discovered_inputs: str | None = None
    after: tuple[str, ...] = ()
    server: Server | None = None
    environment: str | None = None
    verdict: str | None = None
    seconds: float = 300
    megabytes: float = 8000

    @property
    def server_name(self) -> str | None:
        """The server of the environment: ``export@torch2.9``, or ``export`` of the main one."""
        return f"{self.server}@{self.environment}" if self.server and self.environment else self.server

    @property
    def task(self) -> str:
        """The name of the doit task: ``verify:group_norm-custom@torch2.13-dynamo-opset18-ort1.31``."""
        return f"{self.group}:{self.name}" if self.name else self.group


def cell_step_name(group: str, operator: str, lowering: Lowering, cell: Cell) -> str:
    """Return the name of the step of one cell: a model, which an export makes, depends on no ONNX Runtime."""
    return f"{operator}-{lowering}@{cell.export_name if group == 'export' else cell}"
