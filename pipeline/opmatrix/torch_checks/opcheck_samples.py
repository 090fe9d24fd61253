"""Cases as arguments of the registered operator with its fake kernel and gradient, for opcheck and export_check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.declaration.register_models import samples
from opmatrix.export.generated_modules import GeneratedModules, load_generated
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, FromKernel, Model, OpSpec
from opmatrix.testdata.case_arrays import case_arrays
from opmatrix.torch_library import features, load_library, user_python
from opmatrix.torch_library.case_tensors import arguments, tensors
from opmatrix.torch_library.load_library import LoadedLibrary
from opmatrix.torch_library.transforms import has_formula, register_missing_gradient
from opmatrix.torch_library.user_python import Gradient

Trace = Literal["dynamic", "static"]
"""How opcheck traces: with symbolic sizes, or with those of the sample."""


@dataclass(frozen=True, kw_only=True)
class OpcheckSample:
    """One case, its tensors, and the arguments made of them. With backward() declared, they require a gradient.

    `trace` is how opcheck traces the operator, with its gradient; None: not at all.
    """

    model: Model
    case: Case
    tensors: tuple[torch.Tensor, ...]
    arguments: list[Any]
    trace: Trace | None


def complete(
    layout: Paths, operator: Operator, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[OpcheckSample]:
    """Register the fake kernel and the gradient, then yield the samples.

    Registers no gradient in a torch without that feature. `generated` is None for torch's own operator, which has a
    fake kernel.
    """
    assert operator.spec.torch is not None
    if generated and not operator.spec.torch.python:
        generated.fake.register_fake()
    spec, name = operator.spec, loaded.overload.name()
    gradient = user_python.gradient(layout, spec) if features.REGISTRATION.available else None
    if gradient and not has_formula(name):  # another part in this process may have registered it
        serve(layout, gradient)
        gradient.register(name)
    chosen = [*samples(operator)]
    traces: Mapping[int, Trace] = dict.fromkeys(range(len(chosen)), "dynamic")
    if gradient:
        traces = _traces(spec, [counts for _, _, counts in chosen])
    for index, (model, case, _) in enumerate(chosen):
        flat = tensors(spec, model, case, case_arrays(spec, model, case))
        for feed, tensor in zip(graph_inputs(spec, model, case), flat, strict=True):
            if gradient and feed.part.name not in gradient.without and tensor.is_floating_point():
                tensor.requires_grad_()
        called = arguments(spec, case, flat)
        yield OpcheckSample(model=model, case=case, tensors=tuple(flat), arguments=called, trace=traces.get(index))


def serve(layout: Paths, gradient: Gradient) -> None:
    """Make the operator callable that computes a gradient, with its own gradient or with an error in place of one."""
    if not (called := gradient.operator):
        return
    name = load_library.load(layout, called).overload.name()
    if called.spec.torch and not called.spec.torch.python:
        load_generated(layout, called.name).fake.register_fake()
    if own := user_python.gradient(layout, called.spec):
        own.register(name)
    register_missing_gradient(called.spec)


def _traces(spec: OpSpec, counts: Sequence[tuple[int, ...]]) -> dict[int, Trace]:
    """Return the samples to trace, by index: that with the most tensors, and, with its own sizes, that with the fewest.
    A size that the kernel decides is a symbol in every trace.

    The trace of a gradient with symbolic sizes takes 0.7 CPU s for a short formula and 7 for a deformable convolution,
    with those of the sample a tenth. The gradient check covers the other samples.
    """
    given = [*map(sum, counts)]
    fewest: Trace = "dynamic" if any(isinstance(o.shape, FromKernel) for o in spec.outputs) else "static"
    return {given.index(min(given)): fewest, given.index(max(given)): "dynamic"} if given else {}
