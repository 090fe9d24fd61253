"""Describe the inputs of a case that failed, from its declaration: a process that crashed or hung cannot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.python_source import literal, source
from opmatrix.declaration.torch_signature import attribute_values, dtype_of
from opmatrix.errors import one_line
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, Model, OpSpec, Random, Values, shape_of

_FEW = 60  # characters of values that are shown


def of_command(paths: Paths, operator: str, command: str) -> str:
    """Return ``x float32 (2, 3), groups float32 (1,) = (2.0,); eps=1e-05`` for the case of cases.py that a command
    names, or ""."""
    words = shlex.split(command)
    name = words[words.index("--case") + 1] if "--case" in words[:-1] else ""
    for one in read_operators(paths).operators if name else ():
        if one.name == operator:
            found = (_described(one.spec, m, case) for m in one.models for case in m.cases if case.name == name)
            return next(found, "")
    return ""


def _described(spec: OpSpec, model: Model, case: Case) -> str:
    attributes = [f"{name}={literal(value)}" for name, value in attribute_values(spec, model).items()]
    return "; ".join(filter(None, [", ".join(_inputs(spec, model, case)), ", ".join(attributes)]))


def _inputs(spec: OpSpec, model: Model, case: Case) -> Iterator[str]:
    for one in graph_inputs(spec, model, case):
        tensor = one.tensor
        name = f"{one.part.name}[{one.index}]" if one.part.variadic else one.part.name
        text = f"{name} {dtype_of(one.part.type, model.types)} {shape_of(tensor)}"
        if isinstance(tensor, Values) and len(values := one_line(source(tensor.values, width=_FEW))) <= _FEW:
            text += f" = {values}"
        if isinstance(tensor, Random) and tensor.specials:
            text += f" with {', '.join(f'{v} at {i}' for i, v in [*tensor.specials.items()][:3])}"
        layout = getattr(tensor, "layout", "contiguous")
        yield text if layout == "contiguous" else f"{text} {layout}"
