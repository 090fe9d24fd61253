"""Find mistakes in a declaration with `OpSpec.elementwise`, which promises one shape for all inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator

from opmatrix.declaration.size_expressions import FURTHER
from opmatrix.declaration.torch_signature import has_torch_library
from opmatrix.declaration.validation.mistake import Mistake
from opmatrix.spec import Input, OpSpec, Output, SameAs

VARIABLE = "common_format"  # of generated code
RANKS = (4, 5)  # of torch's memory formats channels_last and channels_last_3d
REMEDY = "or remove elementwise=True"


def elementwise_mistakes(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of a declaration that has no others."""
    if not has_torch_library(spec):
        yield Mistake("elementwise", f"found True, allowed: False, because {_why_no_library(spec)}: only a generated "
                      "binding gets tensors of torch that are not contiguous. Remove elementwise=True")  # fmt: skip
        return
    first = spec.inputs[0]
    for index, part in enumerate(spec.inputs):
        if found := _wrong_input(spec, part, first):
            yield Mistake(f"inputs[{index}]", found)
    for index, output in enumerate(spec.outputs):
        if found := _wrong_output(output):
            yield Mistake(f"outputs[{index}]", found)
    if (rank := _rank(first)) is not None and rank not in RANKS:
        yield Mistake("elementwise", f"found True, allowed: False, because {first.name!r} has rank {rank}, and "
                      "torch's memory formats channels_last and channels_last_3d have rank 4 and 5: it would change "
                      "nothing. Remove elementwise=True")  # fmt: skip
    if VARIABLE in {part.name for parts in (spec.inputs, spec.attributes, spec.outputs) for part in parts}:
        yield Mistake(f"{VARIABLE!r}", "means something else in the generated code of an operator with "
                      "elementwise=True; choose another name")  # fmt: skip


def _why_no_library(spec: OpSpec) -> str:
    if spec.torch is None:
        return "torch=None"
    if spec.torch.overrides:
        return "torch has the kernel"
    return f"ops/{spec.name}/torch_op.py defines the operator" if spec.torch.python else "it has no kernel of its own"


def _wrong_input(spec: OpSpec, part: Input, first: Input) -> str:
    """Return why an input cannot be one of an elementwise operator, or ""."""
    if part.optional or part.variadic:
        field = "optional" if part.optional else "variadic"
        return f"{part.name!r} is {field}, allowed with elementwise=True: required tensors. Declare it so, {REMEDY}"
    if part.values is not None:
        return (f"{part.name!r} has values={part.values!r}, which the binding checks along its axes, allowed with "
                f"elementwise=True: None. Check them in the kernel, {REMEDY}")  # fmt: skip
    if _shape(spec, part) != _shape(spec, first):
        return (f"{part.name!r} may have another shape than {first.name!r}, and elementwise=True allows one shape. "
                f"Declare same_as={first.name!r}, {REMEDY}")  # fmt: skip
    return ""


def _wrong_output(output: Output) -> str:
    """Return why an output cannot be one of an elementwise operator, or ""."""
    if output.variadic or isinstance(output.optional, str):
        field = "variadic" if output.variadic else "optional"
        return (f"{output.name!r} has {field}={getattr(output, field)!r}, allowed with elementwise=True: one tensor of "
                f"the inputs' shape. Remove {field}, {REMEDY}")  # fmt: skip
    if not isinstance(output.shape, SameAs) or output.shape.replace:
        return (f"{output.name!r} may have another shape than the inputs, allowed with elementwise=True: "
                f"SameAs(input=...) without replace. Write it, {REMEDY}")  # fmt: skip
    return ""


def _rank(part: Input) -> int | None:
    """Return the number of axes of an input, if its declaration says so."""
    return None if part.dims is None or FURTHER in part.dims else len(part.dims)


def _shape(spec: OpSpec, part: Input) -> tuple[str | int, ...]:
    """Return what the declaration fixes of a shape. Two inputs for which it is equal always have one shape."""
    known = {i.name: i for i in spec.inputs}
    while part.same_as is not None:
        part = known[part.same_as]
    dims = (FURTHER,) if part.dims is None else part.dims
    while part.further_as is not None:
        part = known[part.further_as]
    return (*dims, part.name) if FURTHER in dims else dims
