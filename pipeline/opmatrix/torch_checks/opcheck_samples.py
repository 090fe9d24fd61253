"""Cases as arguments of the registered operator with its fake kernel and gradient, for opcheck and export_check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from opmatrix.declaration.load import Operator
from opmatrix.declaration.model_inputs import graph_inputs
from opmatrix.export.generated_modules import GeneratedModules
from opmatrix.project.paths import Paths
from opmatrix.spec import Case, Model, given
from opmatrix.testdata.case_arrays import case_arrays, described, small_and_finite
from opmatrix.torch_library import features, user_python
from opmatrix.torch_library.case_tensors import arguments, tensors
from opmatrix.torch_library.load_library import LoadedLibrary

SMALL = 1000  # elements


@dataclass(frozen=True, kw_only=True)
class OpcheckSample:
    """One case, its tensors, and the arguments made of them. With backward() declared, they require a gradient."""

    model: Model
    case: Case
    tensors: tuple[torch.Tensor, ...]
    arguments: list[Any]


def complete(
    layout: Paths, operator: Operator, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[OpcheckSample]:
    """Register the fake kernel and the gradient, then yield the first small, finite case of each combination of dtypes
    and inputs. (opcheck fails if an output is NaN.)

    Registers no gradient in a torch without that feature. `generated` is None for torch's own operator, which has a
    fake kernel.
    """
    assert operator.spec.torch is not None
    if generated and not operator.spec.torch.python:
        generated.fake.register_fake()
    spec, seen, name = operator.spec, set(), loaded.overload.name()
    gradient = user_python.gradient(layout, spec) if features.REGISTRATION.available else None
    if gradient and not user_python.has_formula(name):  # another part in this process may have registered it
        gradient.register(name)
    for model in operator.models:
        for case in model.cases:
            key = (tuple(model.types.items()), tuple(len(given(case, i.name)) for i in spec.inputs))
            if key in seen or not described(case):
                continue
            if not small_and_finite(arrays := case_arrays(spec, model, case), elements=SMALL):
                continue
            seen.add(key)
            flat = tensors(spec, model, case, arrays)
            for feed, tensor in zip(graph_inputs(spec, model, case), flat, strict=True):
                if gradient and feed.part.name not in gradient.without and tensor.is_floating_point():
                    tensor.requires_grad_()
            yield OpcheckSample(model=model, case=case, tensors=tuple(flat), arguments=arguments(spec, case, flat))
