"""The rows of `doit compat`: an operator in torch.compile, AOTInductor, torch.vmap, torch.autocast and torch.func.

Each row works, is refused with a reason that follows from the declaration, or has failed. What a row calls works is
compared with plain calls; what is refused must raise an error with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opmatrix import step_log
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import seeds, torch_qualified
from opmatrix.errors import CompatError, one_line
from opmatrix.torch_checks import compat_compiled, compat_gradient, compat_packaged, compat_transforms
from opmatrix.torch_checks.compat_samples import Compat, RefusedError, bases
from opmatrix.torch_library import transforms
from opmatrix.torch_library.user_python import Gradient

RowOutcome = Literal["works", "refused", "failed"]
Check = Callable[[Compat], tuple[int, str]]

CHECKS: Mapping[str, Check] = {
    "torch.compile": compat_compiled.compiled,
    "AOTInductor": compat_packaged.packaged,
    "torch.vmap": compat_transforms.mapped,
    "torch.autocast": compat_transforms.autocast,
    "torch.func.grad": compat_gradient.functional,
    "torch.func.jvp": compat_gradient.forward_mode,
}
"""The rows, in the order of the report. Each check returns how many calls agree, and what they need or ""."""

GENERATOR = "torch.Generator"
"""One more row, of operators that a generator gives a seed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to run an operator. `detail`: why it is refused or wrong, or what it needs; `samples`: how many calls."""

    name: str
    outcome: RowOutcome
    detail: str = ""
    samples: int = 0


def prepare(operator: Operator, overload: Any, gradient: Gradient | None, library: Path | None = None) -> Compat:
    """Register what the transforms need, and choose samples. Raises CompatError where no case can be one."""
    name = torch_qualified(operator.spec)
    if gradient and not transforms.has_formula(name):
        gradient.register(name)
    transforms.register_missing_gradient(operator.spec)
    transforms.register_rules(operator.spec)
    found = bases(operator, overload)
    if not found:
        raise CompatError(
            f"{operator.name}: no case that torch.compile and torch.vmap could run: add one to cases.py that has "
            "elements, at most 4096 in each tensor, and values that cases.py gives"
        )
    return Compat(operator=operator, samples=found, gradient=gradient, library=library)


def rows(compat: Compat) -> Iterator[Row]:
    """Yield every row."""
    for name, check in CHECKS.items():
        step_log.now_running(name)
        yield row(name, check, compat)
    if seeds(compat.spec):
        step_log.now_running(GENERATOR)
        yield row(GENERATOR, compat_transforms.generators, compat)


def row(name: str, check: Check, compat: Compat) -> Row:
    """Run one check, which returns how many calls agree and what they need, or raises an error."""
    try:
        samples, needs = check(compat)
    except RefusedError as why:
        return Row(name=name, outcome="refused", detail=str(why))
    except Exception as error:  # torch may raise anything while it compiles or transforms
        text = str(error) if isinstance(error, CompatError) else f"{type(error).__name__}: {one_line(error)}"
        return Row(name=name, outcome="failed", detail=text)
    return Row(name=name, outcome="works", detail=needs, samples=samples)
