"""The first gate of a mutant: its kernel in torch on the cases, then on the drawn inputs, until one input kills it. It
makes the checks of `register`, parts "kernel", "search" and "forbidden", and stops at the first failure, which is not
made smaller. Runs in the child of a server, which a kernel may crash."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from opmatrix.basics.errors import RegisterError, one_line
from opmatrix.basics.files import write_text
from opmatrix.declaration.checks import refuses_in_torch
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.project.paths import Paths
from opmatrix.search import drawn
from opmatrix.torch_checks import invalid_calls
from opmatrix.torch_checks.kernel_check import KernelCheck, case_checks, check_case
from opmatrix.torch_ops.load import LoadedLibrary, load


def main(arguments: Sequence[str]) -> int:
    """Try the library of an operator in the project of the current folder. Returns 0 if nothing kills the mutant, else
    1, after it wrote which part and which input did. Arguments: the operator, the file for that."""
    name, into = arguments
    paths = Paths(Path.cwd())
    operator = load_operator(paths, name, checked=True)
    for part, case, problem in _problems(paths, operator, load(paths, operator)):
        print(f"{name}-{case} in torch: {problem}")
        write_text(Path(into), json.dumps({"part": part, "case": case, "problem": one_line(problem)}))
        return 1
    return 0


def _problems(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> Iterator[tuple[str, str, str]]:
    """Yield the failures: the part of register, the case, and what is wrong."""
    for check in case_checks(paths, operator, loaded):
        problems, _ = check_case(check)
        yield from (("kernel", check.case.name, problem) for problem in problems)
    if paths.drawn_inputs(operator.name).is_file():
        check_drawn = KernelCheck.of(paths, operator, loaded)
        with torch.no_grad():
            for one in drawn.read(paths.drawn_inputs(operator.name), operator.name):
                if problem := check_drawn.problem(one):
                    yield "search", one.model.name, problem
    if refuses_in_torch(operator):
        try:
            invalid_calls.results(operator, loaded.overload)
        except RegisterError as error:
            yield "forbidden", "invalid calls", str(error)
