"""`doit probe`: measure the installed torch and ONNX Runtime, and write their rows where opmatrix has none.

`doit tolerances OP`: the measured errors of an operator, and the tolerance that they call for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from doit.exceptions import InvalidCommand

from opmatrix.basics.errors import ProbeError, UsageError, printable
from opmatrix.commands.base import CommandBase
from opmatrix.commands.run import Run
from opmatrix.engine.lock import hold
from opmatrix.engine.tasks import StepTask
from opmatrix.project import dtypes, measured
from opmatrix.project.cells import ORT, TORCH, Ort, Torch
from opmatrix.project.settings import installed

GROUP = "probe"


@dataclass(frozen=True, kw_only=True)
class Probed:
    """What was measured of one version, its row if there is one, and how they and the table of dtypes differ."""

    factor: str
    version: str
    row: Torch | Ort | None
    measured_row: Torch | Ort
    differences: Sequence[str]
    dtypes: Sequence[str]

    @property
    def key(self) -> str:
        return f'{self.factor}."{self.version}"'


class Probe(Run):
    """Run the steps of the group `probe`, which measure, and compare the tables with what they measured."""

    name = GROUP
    doc_purpose = "measure what torch and ONNX Runtime support, and write rows of new versions"
    doc_usage = ""
    doc_description = (
        f"Exports and runs tiny models at every opset. In a project, {measured.TABLE} of pyproject.toml then has a row "
        "for each version that opmatrix has not measured, or has measured with another result. In a checkout of "
        "opmatrix, a difference from its tables is an error. `doit probe torch=made ort=made` measures every "
        "environment that exists."
    )

    def execute(self, params: dict[str, Any], args: Sequence[str]) -> int:
        if args:
            raise InvalidCommand(f"probe takes no task, found {args[0]!r}; choose versions by torch= and ort=")
        if code := super().execute(params, [GROUP]):
            return code
        probed = [*self._probed()]
        if measured.is_checkout(self._paths):
            _require_declared(probed)
        else:
            self._write(probed)
        print(f"measured: {', '.join(f'{one.factor} {one.version}' for one in probed)}")
        return 0

    def _write(self, probed: Sequence[Probed]) -> None:
        lines = {one.key: measured.as_toml(one.measured_row) for one in probed if one.differences or not one.row}
        lines |= measured.newer(measured.read(self._paths), installed())
        if lines:
            measured.write(self._paths, lines)
            shown = "".join(f"\n  {key} = {value}" for key, value in lines.items())
            print(f"wrote in pyproject.toml, {measured.TABLE}:{shown}")
        for line in (line for one in probed for line in one.dtypes):
            print(f"note: {line}, by the table of opmatrix. A cell with this dtype may fail")

    def _probed(self) -> Iterator[Probed]:
        """Yield what the steps of this run, or earlier ones that are up to date, have measured."""
        own = measured.read(self._paths)
        for task in self.task_list:
            if not isinstance(task, StepTask) or task.step.group != GROUP:
                continue
            factor = task.step.command[1]
            version = task.step.name.removeprefix(factor)
            result, carried = (json.loads(Path(path).read_text(encoding="utf-8")) for path in task.step.writes)
            row: Torch | Ort | None
            measured_row: Torch | Ort
            if factor == "torch":
                tried = [measured.Export(**one) for one in result]
                row, measured_row = {**TORCH, **own.torch}.get(version), measured.torch_row(tried)
                differences = measured.torch_differences(version, tried, row) if row else []
            else:
                row, measured_row = {**ORT, **own.ort}.get(version), Ort(**result)
                differences = measured.ort_differences(version, measured_row, row) if row else []
            yield Probed(
                factor=factor,
                version=version,
                row=row,
                measured_row=measured_row,
                differences=differences,
                dtypes=dtypes.differences(carried, version=version),
            )


def _require_declared(probed: Sequence[Probed]) -> None:
    """Raise ProbeError with each difference from the tables of this checkout."""
    wrong: list[str] = []
    for one in probed:
        wrong += one.differences
        if not one.row:
            wrong.append(f"{one.key} has no row; measured: {measured.source(one.version, one.measured_row)}")
    if wrong:
        wrong.append("Correct pipeline/opmatrix/project/cells.py")
    if of_dtypes := [line for one in probed for line in one.dtypes]:
        wrong += [*of_dtypes, "Correct SINCE in pipeline/opmatrix/project/dtypes.py"]
    if wrong:
        raise ProbeError("\n".join(wrong))


class Tolerances(CommandBase):
    """Run the stage of the same name in a child process, which may die of a kernel."""

    name = "tolerances"
    doc_purpose = "measured errors of an operator, its conditioning, and the tolerance that they call for"
    doc_usage = "OPERATOR"
    doc_description = (
        "Measures on what is built, so run `doit OPERATOR` first: the cases in torch and in ONNX Runtime, and how far "
        "the exact outputs move when the inputs move by one unit in the last place. Nothing is written."
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if len(args) != 1:
            raise UsageError(f"doit tolerances takes one operator, and was given {len(args)}")
        with hold(self._paths.lock):
            command = [sys.executable, "-m", "opmatrix", "tolerances", args[0]]
            done = subprocess.run(command, cwd=self._paths.root, stdout=subprocess.PIPE, text=True, errors="replace")
        print(printable(done.stdout), end="")
        if done.returncode < 0:
            print(f"doit tolerances: the process died of signal {-done.returncode}", file=sys.stderr)
        return done.returncode if done.returncode >= 0 else 1
