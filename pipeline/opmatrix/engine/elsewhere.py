"""What the engine knows of workers on other machines: `opmatrix.addons.team` has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from opmatrix.engine.shared_results import Origin
from opmatrix.engine.step_failure import StepFailed
from opmatrix.engine.tasks import StepTask


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a step ended that a worker ran. `memory`: as in `Ending`. `origin`: where its outputs came from; None for one
    that failed."""

    seconds: float
    cpu: float
    memory: int = 0
    origin: Origin | None = None
    failure: StepFailed | None = None


class Workers(Protocol):
    """The workers of a run."""

    def run(self, task: StepTask, begins: Callable[[], None]) -> Ended | None:
        """Run a step on a worker, and call `begins` before. None: no worker ran it, so it is to run here. Raises
        OSError."""
        ...

    def close(self) -> None:
        """End the connection, and tell the user who ran what."""
        ...
