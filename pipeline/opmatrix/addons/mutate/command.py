"""`doit mutate [OPERATOR ...]`: change an operator in many small ways, and count which changes its gates find."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from opmatrix.basics.errors import OpmatrixError, UsageError, print_error, printable
from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.commands.base import CommandBase, option, report_again
from opmatrix.engine.lock import hold
from opmatrix.project.settings import read_settings, setting

if TYPE_CHECKING:
    from opmatrix.addons.mutate.scores import MutationScore
    from opmatrix.declaration.load import Operator

COUNT = 60


class Mutate(CommandBase):
    """Try mutants in shadows of the project below build/mutate, one run at a time."""

    name = "mutate"
    doc_purpose = "how strong the checks are: which small changes of an operator its gates find"
    doc_usage = "[OPERATOR ...]"
    doc_description = (
        "Changes kernel, lowerings, gradient and shape rules in small ways, a sample of them, and lets the gates of "
        "`doit` and `doit sanitize` try each. Prints the share that they find, and each survivor as a diff. Run `doit "
        "OPERATOR` first. Without an operator: all of them. Returns 1 for a score below "
        "minimum in [tool.opmatrix.mutate]."
    )
    cmd_options = (
        option("count", "how many mutants of each operator", COUNT),
        {"name": "all", "long": "all", "type": bool, "default": False, "help": "each mutant, not a sample"},
        option("seed", "of the sample; another one gives other mutants", "0"),
        {"name": "jobs", "short": "n", "long": "process", "type": int, "default": 1, "help": "mutants at a time"},
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        """Try the mutants of each operator, and print its score at once."""
        if params["count"] < 1 or params["jobs"] < 1:
            raise UsageError("doit mutate: --count and --process take a number from 1 on")
        least, below, failed = read_settings(self._paths, Scores).minimum, list[str](), 0
        try:
            from opmatrix.declaration.isolated import usable  # here: doit imports this module for every command

            operators = usable(self._paths, args)
            with interruptible(), hold(self._paths.lock) as lock:
                for operator in operators:
                    try:
                        score = self._score(operator, params, lock)
                    except OpmatrixError as error:  # of one operator: the others have their scores
                        print_error(error)
                        failed = failed or error.exit_code
                        continue
                    if score is not None and score.score is not None and score.score < least:
                        below.append(operator.name)
        except OpmatrixError as error:
            print_error(error)
            return error.exit_code
        except KeyboardInterrupt as error:
            print("interrupted; the mutants that were tried are kept", file=sys.stderr, flush=True)
            return code_of(error)
        if below:
            print_error(
                f"doit mutate: the score of {', '.join(below)} is below {least:.1%}, the minimum in pyproject.toml"
            )
        return failed or int(bool(below))

    def _score(self, operator: Operator, params: Mapping[str, Any], lock: int) -> MutationScore | None:
        """Try the mutants of an operator; write and print its score. None where it has no mutant."""
        from opmatrix.addons.mutate import score, scores
        from opmatrix.addons.mutate.mutant import FILE, read_marks
        from opmatrix.addons.mutate.operator_mutants import not_mutated, operator_mutants, sample
        from opmatrix.addons.mutate.result import Dependencies
        from opmatrix.addons.mutate.run import Campaign
        from opmatrix.addons.mutate.tryout import MEGABYTES
        from opmatrix.project.settings import chosen_cells, installed, step_limits
        from opmatrix.toolchain.find import find_toolchain

        paths, name = self._paths, operator.name
        every = operator_mutants(paths, operator.spec)
        if not every:
            print(f"{name}: no mutant: it has neither a kernel of its own nor a lowering, a gradient or a shape rule")
            return None
        if note := not_mutated(paths, operator.spec):
            print(printable(note), file=sys.stderr, flush=True)
        chosen = every if params["all"] else sample(every, count=params["count"], seed=params["seed"])
        cells = operator.cells(chosen_cells(paths))
        campaign = Campaign(
            paths=paths,
            operator=operator,
            cells=cells,
            dependencies=Dependencies(
                paths=paths,
                operator=operator,
                cells=cells,
                toolchain=find_toolchain(os.environ),
                versions=installed(),
            ),
            jobs=params["jobs"],
            lock=lock,
            megabytes=min(MEGABYTES, step_limits(paths).megabytes),
            said=lambda mutant, result: print(printable(score.shown(mutant, result)), flush=True),
        )
        marks = read_marks(paths.op(name) / FILE, every)
        before = os.times()
        results = campaign.run(chosen)
        cpu = sum(os.times()[:4]) - sum(before[:4])  # of this process, and of the servers, which have ended
        tried = score.Tried(mutants=chosen, results=results, marks=marks, total=len(every), seed=params["seed"])
        mutation_score = score.measure(campaign, tried)
        scores.write(paths, mutation_score)
        report_again(paths)
        for line in score.report(campaign, tried, mutation_score, cpu=cpu):
            print(printable(line))
        sys.stdout.flush()
        return mutation_score


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The settings of doit mutate."""

    TABLE: ClassVar[str] = "mutate"
    minimum: float = setting(
        lambda number: isinstance(number, int | float) and not isinstance(number, bool) and 0 <= number <= 1,
        "a number from 0 to 1, such as 0.95", default=0.0,
    )  # fmt: skip
    """`doit mutate` exits with 1 if a score is lower: from 0 to 1, such as 0.95"""
