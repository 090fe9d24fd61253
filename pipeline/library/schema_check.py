"""Hold a compiled torch library against its declaration: opcheck, and the nodes that the exporters make of it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from pipeline.data import arrays
from pipeline.errors import RegisterError
from pipeline.layout import Layout
from pipeline.library.strided import strided
from pipeline.library.torch_call import torch_attributes, torch_minor
from pipeline.load import Operator
from pipeline.matrix import EXPORTERS, LEGAL_OPSETS, Cell
from pipeline.models.demand import Demand
from pipeline.models.exporters import Glue, Tensors, export, load_glue
from pipeline.schema import dtype_of
from pipeline.spec import Case, Model, Random, shape_of

# All four apply. An operator without a formula for its gradient passes "autograd_registration" and "aot_dispatch" as
# long as no input asks for a gradient; with one declared, the inputs here will ask.
OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")

SMALL = 1000  # elements


def results(layout: Layout, operator: Operator, overload: Any) -> list[dict[str, str]]:
    """Return what was proved; register the fake kernel. Raises RegisterError or ExportError for what was not."""
    glue = load_glue(layout, operator.name)
    glue.fake.register_fake()
    checked = [
        {"case": case.name, "check": test}
        for model, case in _samples(operator)
        for test in _opcheck(operator, model, case, overload)
    ]
    return checked + [{"model": str(demand), "check": "export"} for demand in _exports(operator, glue)]


def _opcheck(operator: Operator, model: Model, case: Case, overload: Any) -> Iterator[str]:
    """Yield the name of each of opcheck's tests."""
    outcomes = torch.library.opcheck(
        overload,
        _tensors(operator, model, case),
        torch_attributes(operator.spec, model),
        test_utils=OPCHECKS,
        raise_exception=False,
    )
    for test, outcome in outcomes.items():
        if outcome != "SUCCESS":
            raise RegisterError(
                f"{operator.name}-{case.name}: torch.library.opcheck's {test} says: {outcome}. "
                f"The binding or the fake kernel does not do what the schema promises"
            )
        yield test


def _exports(operator: Operator, glue: Glue) -> Iterator[Demand]:
    """Export one model through each exporter with the compiled library in place; the gates judge it as any other."""
    model, case = next(_samples(operator))
    opset = max(operator.spec.min_opset, LEGAL_OPSETS["dynamo"].start)
    for exporter in EXPORTERS:
        cell = Cell(torch=torch_minor(), exporter=exporter, opset=opset, ort="0.0")
        demand = Demand(spec=operator.spec, model=model, lowering="custom", cell=cell, schema=glue.schema.schema())
        export(demand, glue, _tensors(operator, model, case))
        yield demand


def _samples(operator: Operator) -> Iterator[tuple[Model, Case]]:
    """Yield the first small, finite case of each choice of dtypes: opcheck fails where an output is NaN."""
    seen = set()
    for model in operator.models:
        for case in model.cases:
            key = tuple(model.types.items())
            if key not in seen and _small_and_finite(case):
                seen.add(key)
                yield model, case


def _small_and_finite(case: Case) -> bool:
    tensors = case.inputs.values()
    specials = [v for t in tensors if isinstance(t, Random) for v in t.specials.values()]
    return all(map(math.isfinite, specials)) and all(0 < math.prod(shape_of(t)) <= SMALL for t in tensors)


def _tensors(operator: Operator, model: Model, case: Case) -> Tensors:
    spec = operator.spec
    return tuple(
        strided(
            arrays.array(
                case.inputs[i.name],
                dtype_of(i.type, model.types),
                seed_of=arrays.seed_of(spec.name, case.name, i.name),
            ),
            case.inputs[i.name].layout,
        )
        for i in spec.inputs
    )
