"""`doit check MODEL...`: print what is wrong with models, and where. `opmatrix check` needs no project: it works in an
empty one in a temporary folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import OpmatrixError, ToolchainError, UsageError, print_error
from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.basics.version import minor
from opmatrix.commands.base import CommandBase, as_typed, option
from opmatrix.project.measured import use_rows
from opmatrix.project.settings import installed, is_project

_NEEDED = ("onnx", "onnxruntime", "numpy", "rich", "jinja2")


class Check(CommandBase):
    """Run each part in its own process, so that a crash, a hang or too much memory is a finding."""

    name = "check"
    doc_purpose = "print what is wrong with ONNX models, or with a torch model as exported, and where"
    doc_usage = "MODEL.onnx... | MODULE:FUNCTION | PATH/TO/FILE.py:FUNCTION"
    doc_description = (
        "A function takes nothing and returns (module, inputs), or (module, inputs, options): a torch.nn.Module, a "
        "tuple of tensors, and a dict of input_names, output_names and dynamic, {input: (axis name or None, ...)}. "
        "Several models get a line each. In a project, its libraries are taken as they are built, so run `doit` first; "
        "`opmatrix check` works in any folder. Exit codes: 0 no check failed, 1 a check failed, 2 usage error."
    )
    cmd_options = (
        option("shape", "shape of a random input, such as --shape x=1,3,48,192; once per input", []),
        option(
            "inputs", "an .npz file or a folder of data sets; default: those in the model's folder, else random inputs"
        ),
        option("against", "a model that is right: compare the outputs, and the values of the same names"),
        option("library", "a custom-op library of another project; its nodes are run, but not compared", []),
        option("ort", "also run in this version, such as 1.18; without its environment: check that it reads the model"),
        option("exporter", "of a function: legacy, dynamo, or both", "both"),
        option("opset", "of a function: the opset to export at", 18),
        option("rtol", "relative tolerance, for all floats; default: float32 1e-4, float64 1e-9, float16 1e-2"),
        option("atol", "absolute tolerance, for all floats; default: float32 1e-5, float64 1e-10, float16 1e-3"),
        option("seconds", "time limit of each model; default: 120, or that of a step if it is less"),
        option("megabytes", "memory limit of each model; default: 4000, or four times the model if that is more"),
    )

    def parse_execute(self, in_args: Sequence[str]) -> Any:
        """Accept options after the model too, which doit 0.37 does not."""
        return super().parse_execute(_options_first(as_typed(in_args, command=self.name)))

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        """Check models and print each finding at once."""
        # Imported here, because doit imports this module for every command.
        from opmatrix.addons.check.arguments import FORMS, parse

        try:
            if not args:
                raise UsageError(f"doit check takes one model or several; write {FORMS}")
            _require_packages()
            from opmatrix.addons.check.print_findings import FindingPrinter, check, check_outside

            found = is_project(Path.cwd())
            here, models = Path.cwd(), dict.fromkeys(args)
            if found:
                use_rows(self._paths)
            requests = [parse(model, params, here, torch=lambda: minor(installed().torch)) for model in models]
            if not found and (function := next((r for r in requests if r.function), None)):
                raise UsageError(
                    f"{function.model!r}: a function is checked in a project, with its operators, and there is none in "
                    f"{str(here)!r}. Outside, check .onnx files; a new project: opmatrix new --project DIR"
                )
            with interruptible():
                if found:
                    return check(requests, self._paths, FindingPrinter(sys.stdout), project=True)
                return check_outside(requests)
        except OpmatrixError as error:
            print_error(error)
            return UsageError.exit_code
        except KeyboardInterrupt as error:
            print("interrupted", file=sys.stderr, flush=True)
            return code_of(error)


def _require_packages() -> None:
    """Raise ToolchainError where a package is missing, as in an installation of opmatrix alone."""
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ToolchainError(
            f"doit check needs {', '.join(_NEEDED)}; not installed for {sys.executable}: {', '.join(missing)}. "
            f"Install: pip install {' '.join(missing)}"
        )


def _options_first(words: Sequence[str]) -> list[str]:
    """Return the words with the options first. Each option of this command takes a value."""
    with_value = {f"--{option['long']}" for option in Check.cmd_options}
    options: list[str] = []
    others: list[str] = []
    remaining = iter(words)
    for word in remaining:
        if word.startswith("--"):
            options += [word, *islice(remaining, word in with_value)]
        else:
            others.append(word)
    return options + others
