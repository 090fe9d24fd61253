"""Hold a compiled torch library against its declaration: opcheck, and the nodes that the exporters make of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from pipeline.data.numbers import case_arrays, small_and_finite
from pipeline.errors import RegisterError
from pipeline.feeds import feeds
from pipeline.layout import Layout
from pipeline.library import torch_op
from pipeline.library.inputs import arguments, tensors
from pipeline.library.torch_call import torch_attributes, torch_minor
from pipeline.library.torch_library import Loaded
from pipeline.library.torch_op import Gradient
from pipeline.load import Operator
from pipeline.matrix import LEGAL_OPSETS, TORCH_EXPORTERS, Cell
from pipeline.models import targets
from pipeline.models.demand import Demand
from pipeline.models.exporters import Glue, export, load_glue
from pipeline.spec import Case, Model, given

OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")

SMALL = 1000  # elements


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One case, its tensors, and the arguments made of them. Where a formula for the gradient is declared, they ask for
    it."""

    model: Model
    case: Case
    tensors: tuple[torch.Tensor, ...]
    arguments: list[Any]


def results(layout: Layout, operator: Operator, loaded: Loaded) -> list[dict[str, str]]:
    """Return what was proved; register the fake kernel and the gradient.

    Raises RegisterError or ExportError for what was not.
    """
    assert operator.spec.torch is not None
    if operator.spec.torch.overrides:  # torch's own, and proved by torch; that they are there was checked in loading
        return [{"overload": str(overload), "check": "overridden"} for overload in targets.overloads(operator.spec)]
    glue = load_glue(layout, operator.name)
    if not operator.spec.torch.python:
        glue.fake.register_fake()
    gradient = torch_op.gradient(layout, operator.spec)
    if gradient:
        gradient.register(loaded.overload.name())
    samples = list(_samples(operator, gradient))
    checked = [
        {"case": sample.case.name, "check": test}
        for sample in samples
        for test in _opcheck(operator, sample, loaded.overload)
    ]
    return checked + [{"model": str(demand), "check": "export"} for demand in _exports(operator, glue, samples[0])]


def _opcheck(operator: Operator, sample: Sample, overload: Any) -> Iterator[str]:
    """Yield the name of each of opcheck's tests."""
    outcomes = torch.library.opcheck(
        overload,
        tuple(sample.arguments),
        torch_attributes(operator.spec, sample.model),
        test_utils=OPCHECKS,
        raise_exception=False,
    )
    for test, outcome in outcomes.items():
        if outcome != "SUCCESS":
            raise RegisterError(
                f"{operator.name}-{sample.case.name}: torch.library.opcheck's {test} says: {outcome}. "
                f"The binding, the fake kernel or the gradient does not do what the schema promises"
            )
        yield test


def _exports(operator: Operator, glue: Glue, sample: Sample) -> Iterator[Demand]:
    """Export one model through each exporter with the compiled library in place; the gates judge it as any other."""
    opset = max(operator.spec.min_opset, LEGAL_OPSETS["dynamo"].start)
    for exporter in TORCH_EXPORTERS:
        cell = Cell(torch=torch_minor(), exporter=exporter, opset=opset, ort="0.0")
        demand = Demand(
            spec=operator.spec, model=sample.model, lowering="custom", cell=cell, schema=glue.schema.schema()
        )
        export(demand, glue, sample.tensors)
        yield demand


def _samples(operator: Operator, gradient: Gradient | None) -> Iterator[Sample]:
    """Yield the first small, finite case of each choice of dtypes and inputs: opcheck fails where an output is NaN."""
    spec, seen = operator.spec, set()
    for model in operator.models:
        for case in model.cases:
            key = (tuple(model.types.items()), tuple(len(given(case, i.name)) for i in spec.inputs))
            if key in seen or not small_and_finite(numbers := case_arrays(spec, model, case), elements=SMALL):
                continue
            seen.add(key)
            flat = [
                _asking(t, asks=gradient is not None and feed.part.name not in gradient.without)
                for feed, t in zip(feeds(spec, model, case), tensors(spec, model, case, numbers), strict=True)
            ]
            yield Sample(model=model, case=case, tensors=tuple(flat), arguments=arguments(spec, case, flat))


def _asking(tensor: torch.Tensor, *, asks: bool) -> torch.Tensor:
    return tensor.requires_grad_() if asks and tensor.is_floating_point() else tensor
