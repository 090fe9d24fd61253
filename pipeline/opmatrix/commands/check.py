"""`doit check MODEL`: what is wrong with a model that uses custom operators, and where. A doit command."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.commands.base import CommandBase
from opmatrix.engine.lock import hold
from opmatrix.errors import OpmatrixError, UsageError
from opmatrix.project.paths import Paths
from opmatrix.project.settings import installed
from opmatrix.version import minor


def _option(name: str, default: Any, help: str) -> dict[str, Any]:
    return {"name": name, "long": name, "type": type(default), "default": default, "help": help}


class Check(CommandBase):
    """Every part runs in a process of its own, for which a crash, a hang and too much memory are findings."""

    name = "check"
    doc_purpose = "say what is wrong with a model that uses custom operators, and where"
    doc_usage = "MODEL.onnx | MODULE:FUNCTION | PATH/TO/FILE.py:FUNCTION"
    doc_description = (
        "A function takes nothing and returns (module, inputs), or (module, inputs, options): a torch.nn.Module, a "
        "tuple of tensors, and a dict of input_names, output_names and dynamic, {input: (axis name or None, ...)}. "
        "Libraries are taken as they are built, so run `doit` first. Returns 0 if all is well, 1 if something is "
        "wrong, 2 for what is no model."
    )
    cmd_options = (
        _option(
            "ort",
            "",
            "does it run in this version as well, such as 1.18? Without its environment: would that read it",
        ),
        _option("inputs", "", "a .npz file; without it test_data_set_0 beside the model, else numbers are drawn"),
        _option("exporter", "both", "of a function: legacy, dynamo, or both"),
        _option("opset", 18, "of a function: the opset to export at"),
        _option("rtol", "", "relative tolerance, for all floats; default: float32 1e-4, float64 1e-9, float16 1e-2"),
        _option("atol", "", "absolute tolerance, for all floats; default: float32 1e-5, float64 1e-10, float16 1e-3"),
    )

    def parse_execute(self, in_args: Sequence[str]) -> Any:
        """Take options behind the model as well, which doit would not."""
        return super().parse_execute(_options_first(in_args))

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        """Check one model and print each answer as it is found."""
        # What follows is imported here: doit imports this module for every command.
        from opmatrix.model_check.arguments import FORMS, parse

        layout = Paths(Path.cwd())
        try:
            if len(args) != 1:
                raise UsageError(f"doit check takes one model, and was given {len(args)}; write {FORMS}")
            what = parse(args[0], params, layout.root, torch=minor(installed().torch))
            from opmatrix.commands.check_run import Parts
            from opmatrix.model_check.print_findings import FindingPrinter

            teller = FindingPrinter(sys.stdout)
            with hold(layout.lock) as lock, Parts(layout, what, lock=lock, teller=teller) as parts:
                parts.check()
        except OpmatrixError as error:
            print(error, file=sys.stderr, flush=True)
            return 2
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr, flush=True)
            return 130
        teller.print_summary()
        return int(teller.counts["wrong"] > 0)


def _options_first(words: Sequence[str]) -> list[str]:
    """Return the words with options before all others. Each of this command's own takes a value."""
    own = {f"--{option['name']}" for option in Check.cmd_options}
    options: list[str] = []
    others: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if not word.startswith("--"):
            others.append(word)
            continue
        options.append(word)
        if word in own and waiting:
            options.append(waiting.pop(0))
    return options + others
