"""Try one mutant in a shadow: compile it, and let the gates judge it until one finds it."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from opmatrix.addons.mutate.gates import COMPILE, Gate
from opmatrix.addons.mutate.result import Outcome, Result
from opmatrix.basics.errors import one_line
from opmatrix.basics.files import digests_by_path
from opmatrix.basics.step_log import last_running, read_log
from opmatrix.engine.server_pool import Pool
from opmatrix.engine.shadow import Shadow
from opmatrix.engine.step_failure import death_message, read_output
from opmatrix.toolchain.find import find_compiler

TIMES = 10  # as much CPU time as the original takes in a gate is a time-out, but
LEAST_SECONDS = 3  # CPU seconds in any case
UNKNOWN_SECONDS = 60  # CPU seconds of a gate that the original was not measured in
WAITING = 20  # times as many seconds by the clock as of CPU time: a process may sleep, or share its core
MEGABYTES = 4000.0
_WHY = 1000  # characters of a message that are kept


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A shadow with the servers that judge what is in it; `watched` are the servers with sanitizers. `cpu`: the CPU
    seconds of the original by gate, from which the limits of mutants follow."""

    shadow: Shadow
    pool: Pool
    watched: Pool
    cpu: dict[str, float]
    megabytes: float = MEGABYTES
    servers: Mapping[str | None, str] = field(default_factory=dict)
    """The server that is used in place of another one, whose imports it has as well."""

    def close(self) -> None:
        """End the servers, and with them what they run."""
        for pool in (self.pool, self.watched):
            pool.close()

    def objects(self) -> dict[str, str]:
        """Return the digests of the compiled objects."""
        folder = self.shadow.paths.compile_folder(self.shadow.name)
        return digests_by_path(sorted(folder.glob("*.o")), folder)

    def tried(self, gate: Gate, *, measure: bool = False) -> Result:
        """Let one gate judge what is in the shadow: killed, stopped, or survived. `measure`: it is the original."""
        said = self.shadow.root / "killed.json"
        said.unlink(missing_ok=True)
        words = (*gate.words, str(said)) if gate.entry.endswith("torch_gate:main") else gate.words
        known = self.cpu.get(gate.name)
        limit = UNKNOWN_SECONDS if known is None else max(LEAST_SECONDS, math.ceil(TIMES * known))
        seconds = 600 if measure else limit
        log = self.shadow.root / "gate.log"
        pool = self.watched if gate.watched else self.pool
        ending = pool.run(
            [str(self.shadow.root), str(seconds), gate.entry, *words],
            server=gate.server if gate.watched else self.servers.get(gate.server, gate.server),
            log=log,
            seconds=max(30, seconds * WAITING),
            megabytes=self.megabytes,
            # Warnings are errors, and a variable that is not used any more is no reason not to try a mutant.
            environment={"OPMATRIX_JOBS": "1", "CXX": shlex.join((*find_compiler(os.environ), "-w"))},
        )
        if measure:
            self.cpu[gate.name] = max(ending.cpu, known or 0.0)
        result = Result(outcome="survived", gate=gate.name, cpu=ending.cpu)
        if ending.done:
            return result
        output = read_output(log)
        late = ending.stopped == "time" or ending.status == -signal.SIGXCPU
        # A process of its own that the gate started may have run into the limit.
        if late or (signal.SIGXCPU.name in output and not ending.stopped):
            return replace(result, outcome="stopped", why=f"took more than {seconds} CPU seconds")
        died = death_message(ending, seconds=seconds, megabytes=self.megabytes)
        if ending.stopped in ("memory", "written"):
            return replace(result, outcome="stopped", why=died.removesuffix(" and was stopped"))
        wrote: Mapping[str, Any] = json.loads(said.read_text(encoding="utf-8")) if said.is_file() else {}
        at = last_running(read_log(log))
        how = f"{died}, at {at}" if died and at else died
        why = str(wrote.get("problem", "")) or one_line(how or _telling(output, self.shadow.name))
        running = at.removeprefix("case ").partition(" ")[0] if died and at.startswith("case ") else ""
        case = str(wrote.get("case", "")) or running or _case(output, self.shadow.name)
        return replace(result, outcome="killed", why=why[:_WHY], part=str(wrote.get("part", "")), case=case)

    def compiled(self, path: str, text: str, original: Mapping[str, str], *, measure: bool = False) -> Result | None:
        """Write a file and compile it; return None where the objects are others than the `original` ones. Without
        `original` objects it is not compiled."""
        self.shadow.write(path, text)
        if not original:
            return None
        tried = self.tried(Gate(name=COMPILE, words=(COMPILE, self.shadow.name)), measure=measure)
        if tried.outcome != "survived":
            outcome: Outcome = "stopped" if tried.outcome == "stopped" else "invalid"
            return Result(outcome=outcome, gate=COMPILE, why=tried.why)
        return Result(outcome="equivalent", gate=COMPILE) if self.objects() == original else None

    def judged(self, gates: Sequence[Gate], before: Callable[[int], None]) -> Result:
        """Return how the gates judge what is compiled in the shadow. `before` is called with the number of each."""
        cpu, gate = 0.0, None
        for number, gate in enumerate(gates):
            before(number)
            if gate.unless and self._is_as_built(gate.unless):
                continue
            tried = self.tried(gate)
            cpu += tried.cpu
            if tried.outcome != "survived":
                return replace(tried, cpu=cpu)
        return Result(outcome="survived", gate=gate.name if gate else "", cpu=cpu)

    def _is_as_built(self, path: str) -> bool:
        written, built = (root / path for root in (self.shadow.root, self.shadow.real.root))
        return written.is_file() and built.is_file() and written.read_bytes() == built.read_bytes()


def _telling(output: str, name: str) -> str:
    """Return the line of a gate's output that says most: that which names the operator first, or has an error."""
    marks = (": error: ", "ERROR: ", "runtime error: ", "WARNING: ThreadSanitizer", "Error: ")
    lines = [line for line in output.splitlines() if line.strip() and not line.startswith(("$ ", "==="))]
    named = [line for line in lines if line.startswith((f"{name}-", f"{name}: "))]
    errors = [line for line in lines if any(mark in line for mark in marks)]
    return next(iter([*named, *errors, *lines]), "")


def _case(output: str, name: str) -> str:
    """Return the case that the message of a gate names, or ""."""
    found = re.search(rf"\b{re.escape(name)}-(?:custom-|decomposed-)?(\w+)(?:@| in torch)", output)
    return found[1] if found else ""
