"""One case as a call of the registered operator, with its fake kernel and gradient: what opcheck, the gradient check
and `doit compat` call, each with cases of its own choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import torch

from opmatrix.data.arrays import Array
from opmatrix.data.case_arrays import case_arrays
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs, samples
from opmatrix.export.generated_modules import GeneratedModules, load_generated
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import attribute_values, callers_name
from opmatrix.spec import Case, FromKernel, Model, OpSpec, tensors_of
from opmatrix.torch_ops import features, load
from opmatrix.torch_ops.call import CALL_ERRORS, ComposedCall, as_tuple, registered_overload, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, tensors
from opmatrix.torch_ops.load import Gradient, LoadedLibrary
from opmatrix.torch_ops.transforms import has_formula, register_missing_gradient

Trace = Literal["dynamic", "static"]
"""How opcheck traces: with symbolic sizes, or with those of the case."""


@dataclass(frozen=True, kw_only=True, eq=False)
class CaseCall:
    """A model of one case, and its tensors. `derived` are the indices of those that take a gradient.

    `composed`: it calls the operator that others call, with copies of what that writes, in place of the one in the
    library. `trace` is how opcheck traces the operator, with its gradient; None: not at all.
    """

    spec: OpSpec
    model: Model
    tensors: Sequence[torch.Tensor]
    derived: Sequence[int] = ()
    composed: bool = False
    trace: Trace | None = None

    @property
    def case(self) -> Case:
        return self.model.cases[0]

    def __str__(self) -> str:
        return f"{self.spec.name}-{self.case.name}"

    @property
    def subject(self) -> str:
        """The case with dtypes and shapes: ``case small (x: float32 (2, 3))``."""
        shown = ", ".join(
            f"{name}: {str(t.dtype).removeprefix('torch.')} {tuple(t.shape)}"
            for name, t in zip(self.names, self.tensors, strict=True)
        )
        called = f" of {callers_name(self.spec)}" if self.composed else ""
        return f"case {self.case.name}{called} ({shown})"

    def described(self) -> str:
        """Return ``T=float32, dim=0, x (2, 3), bias absent``: dtypes, attributes, shapes."""
        parts = [f"{name}={dtype}" for name, dtype in self.model.types.items()]
        parts += [f"{name}={value!r}" for name, value in attribute_values(self.spec, self.model).items()]
        shapes = iter(self.tensors)
        for part in self.spec.inputs:
            shown = [str(tuple(next(shapes).shape)) for _ in tensors_of(self.case, part.name)]
            parts.append(f"{part.name} {' '.join(shown) or 'absent'}")
        return ", ".join(parts)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The declared input of each tensor."""
        return tuple(feed.part.name for feed in graph_inputs(self.spec, self.model, self.case))

    @cached_property
    def function(self) -> Any:
        """The operator with the attributes of the case, as a function of its inputs."""
        if self.composed:
            return ComposedCall(self.spec, self.model)
        return with_attributes(registered_overload(self.spec), self.spec, self.model)

    @cached_property
    def arguments(self) -> list[Any]:
        """The arguments of the case."""
        return self.arguments_of(self.tensors)

    def arguments_of(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        """Return one argument per input: a tensor, None, or a list."""
        return arguments(self.spec, self.case, tensors)

    def call(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the operator with these tensors and the attributes of the case; return its outputs."""
        return as_tuple(self.function(*self.arguments_of(tensors)))

    def accepts(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether the operator takes these tensors: a kernel and rules of values may refuse some."""
        try:
            self.call(*tensors)
        except CALL_ERRORS:
            return False
        return True

    def with_derived(self, derived: Sequence[Any]) -> list[Any]:
        """Return one value per tensor: those of `derived` in their places."""
        values: list[Any] = [*self.tensors]
        for index, tensor in zip(self.derived, derived, strict=True):
            values[index] = tensor
        return values

    def call_derived(self, *derived: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the operator with other tensors in place of those that take a gradient."""
        return self.call(*self.with_derived(derived))

    def floating(self, *derived: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the floating outputs of `call_derived`; others have no gradient."""
        return tuple(o for o in self.call_derived(*derived) if o.is_floating_point())

    def with_model(self, model: Model) -> CaseCall:
        """Return the same call with the tensors of another model of one case."""
        return replace(self, model=model, tensors=case_call(self.spec, model).tensors)

    def leaves(self) -> tuple[torch.Tensor, ...]:
        """Return the `derived` tensors as leaves that require a gradient.

        They keep their strides unless one is 0, because gradcheck varies elements in place.
        """
        chosen = (self.tensors[index].detach() for index in self.derived)
        return tuple((t.contiguous() if 0 in t.stride() else t).requires_grad_() for t in chosen)


def case_call(spec: OpSpec, model: Model, arrays: Sequence[Array] | None = None) -> CaseCall:
    """Return the call of a model's first case. Raises DataError for a tensor that cannot be made."""
    case = model.cases[0]
    made = case_arrays(spec, model, case) if arrays is None else arrays
    return CaseCall(spec=spec, model=replace(model, cases=(case,)), tensors=tensors(spec, model, case, made))


def renamed(model: Model, suffix: str) -> Model:
    """Return a model of one case with other random values, which follow from the case's name."""
    case = model.cases[0]
    return replace(model, cases=(replace(case, name=f"{case.name}{suffix}"),))


def complete(
    paths: Paths, operator: Operator, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Gradient | None:
    """Register the fake kernel and the gradient; return the gradient, if there is one and this torch can register it.

    `generated` is None for torch's own operator, which has a fake kernel.
    """
    assert operator.spec.torch is not None
    if generated and not operator.spec.torch.python:
        generated.fake.register_fake()
    name = loaded.overload.name()
    gradient = load.gradient(paths, operator.spec) if features.REGISTRATION.available else None
    if gradient and not has_formula(name):  # another part in this process may have registered it
        serve(paths, gradient)
        gradient.register(name)
    return gradient


def serve(paths: Paths, gradient: Gradient) -> None:
    """Make the operator callable that computes a gradient, with its own gradient or with an error in place of one."""
    if not (called := gradient.operator):
        return
    name = load.load(paths, called).overload.name()
    if called.spec.torch and not called.spec.torch.python:
        load_generated(paths, called.name).fake.register_fake()
    if own := load.gradient(paths, called.spec):
        own.register(name)
    register_missing_gradient(called.spec)


def opcheck_calls(operator: Operator, gradient: Gradient | None) -> Iterator[CaseCall]:
    """Yield the cases that opcheck calls. With a gradient, their tensors require one.

    Then it traces, with a size that the kernel decides as a symbol, only the case with the most tensors, and, with its
    own sizes, that with the fewest. The trace of a gradient with symbolic sizes takes 0.7 CPU s for a short formula and
    7 for a deformable convolution, with those of the case a tenth. The gradient check covers the other cases.
    """
    spec, chosen = operator.spec, [*samples(operator)]
    traces: dict[int, Trace] = dict.fromkeys(range(len(chosen)), "dynamic")
    if gradient and chosen:
        counts = [sum(counts) for _, _, counts in chosen]
        fewest: Trace = "dynamic" if any(isinstance(o.shape, FromKernel) for o in spec.outputs) else "static"
        traces = {counts.index(min(counts)): fewest, counts.index(max(counts)): "dynamic"}
    for index, (model, case, _) in enumerate(chosen):
        one = replace(case_call(spec, replace(model, cases=(case,))), trace=traces.get(index))
        for name, tensor in zip(one.names, one.tensors, strict=True):
            if gradient and name not in gradient.without and tensor.is_floating_point():
                tensor.requires_grad_()
        yield one
