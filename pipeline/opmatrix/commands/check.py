"""`doit check MODEL`: find what is wrong with a model that uses custom operators, and where. A doit command."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from opmatrix.commands.base import CommandBase, option
from opmatrix.engine.lock import hold
from opmatrix.errors import OpmatrixError, UsageError, print_error
from opmatrix.project.settings import installed
from opmatrix.version import minor


class Check(CommandBase):
    """Run each part in its own process, so that a crash, a hang or too much memory is a finding."""

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
        option("ort", "does it run in this version as well, such as 1.18? Without its environment: would that read it"),
        option("inputs", "a .npz file; without it test_data_set_0 beside the model, else numbers are drawn"),
        option("exporter", "of a function: legacy, dynamo, or both", "both"),
        option("opset", "of a function: the opset to export at", 18),
        option("rtol", "relative tolerance, for all floats; default: float32 1e-4, float64 1e-9, float16 1e-2"),
        option("atol", "absolute tolerance, for all floats; default: float32 1e-5, float64 1e-10, float16 1e-3"),
    )

    def parse_execute(self, in_args: Sequence[str]) -> Any:
        """Accept options after the model too, which doit 0.37 does not."""
        return super().parse_execute(_options_first(in_args))

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        """Check one model and print each finding at once."""
        # Imported here, because doit imports this module for every command.
        from opmatrix.model_check.arguments import FORMS, parse

        try:
            if len(args) != 1:
                raise UsageError(f"doit check takes one model, and was given {len(args)}; write {FORMS}")
            request = parse(args[0], params, self._paths.root, torch=minor(installed().torch))
            from opmatrix.commands.check_run import ModelCheck
            from opmatrix.model_check.print_findings import FindingPrinter

            printer = FindingPrinter(sys.stdout)
            with hold(self._paths.lock) as lock:
                ModelCheck(self._paths, request, lock=lock, printer=printer).run()
        except OpmatrixError as error:
            print_error(error)
            return 2
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr, flush=True)
            return 130
        printer.print_summary()
        return int(printer.counts["wrong"] > 0)


def _options_first(words: Sequence[str]) -> list[str]:
    """Return the words with the options first. Each option of this command takes a value."""
    with_value = {f"--{option['name']}" for option in Check.cmd_options}
    options: list[str] = []
    others: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word.startswith("--"):
            options += [word, *islice(remaining, word in with_value)]
        else:
            others.append(word)
    return options + others
