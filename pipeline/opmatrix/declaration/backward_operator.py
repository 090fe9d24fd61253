"""The operator that computes the gradient of another one: `TorchOp.backward`.

Its inputs are the gradients of the other's outputs, ``grad_<output>``, and its inputs and outputs by their names, as
far as it needs them; its attributes are the other's by their names; its outputs are gradients of inputs,
``grad_<input>``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from opmatrix.basics.errors import did_you_mean
from opmatrix.signature.signature import allowed_dtypes, dtype_of, dtype_tuples, tensors, torch_arguments
from opmatrix.spec import Input, OpSpec, Output

GRAD = "grad_"


def backward_of(spec: OpSpec) -> str:
    """Return the name of the operator that computes the gradient, or ""."""
    return spec.torch.backward if spec.torch else ""


def without_gradient(spec: OpSpec, backward: OpSpec) -> tuple[str, ...]:
    """Return the floating inputs for which the operator `backward` has no output."""
    given = {output.name for output in backward.outputs}
    return tuple(i.name for i in spec.inputs if f"{GRAD}{i.name}" not in given and _is_floating(spec, i))


def mistakes(spec: OpSpec, backward: OpSpec) -> Iterator[str]:
    """Yield why the operator `backward` cannot compute the gradient of `spec`: a sentence each, of what to change."""
    if not backward.torch or backward.torch.overrides:
        yield "it has no torch operator of its own; declare one in its `torch`"
        return
    if backward.torch.backward:
        yield (
            f"it names {backward.torch.backward!r} as its own backward, allowed: setup_context() and backward() in its "
            "torch_op.py, for a second derivative"
        )
    grads: dict[str, Input | Output] = {f"{GRAD}{o.name}": o for o in spec.outputs if _is_floating(spec, o)}
    parts: list[Input | Output] = [*spec.outputs, *spec.inputs]
    known = {part.name: part for part in parts} | grads
    for given in backward.inputs:
        if (own := known.get(given.name)) is None:
            yield (f"its input {given.name!r} is unknown{did_you_mean(given.name, known)}, allowed: {', '.join(known)}")
        elif isinstance(own, Input) and (own.variadic or given.variadic):
            yield f"its input {given.name!r} is variadic, allowed: inputs that are one tensor; write torch_op.py"
        elif isinstance(own, Output) and own.optional:
            yield f"its input {given.name!r} is an optional output, which a call may leave out; write torch_op.py"
        elif isinstance(own, Input) and given.optional != own.optional:
            yield f"its input {given.name!r} is declared optional={given.optional}, allowed: {own.optional}, as there"
    attributes = {a.name: a for a in spec.attributes}
    for attribute in backward.attributes:
        if (there := attributes.get(attribute.name)) is None:
            names = ", ".join(attributes) or "none"
            near = did_you_mean(attribute.name, attributes)
            yield f"its attribute {attribute.name!r} is unknown{near}, allowed: {names}"
        elif (attribute.kind, attribute.optional) != (there.kind, there.optional):
            yield (
                f"its attribute {attribute.name!r} is {attribute.kind}{'?' * attribute.optional}, allowed: "
                f"{there.kind}{'?' * there.optional}, as there"
            )
    derived = {
        f"{GRAD}{a.source.name}": a.source
        for a in torch_arguments(spec)
        if isinstance(a.source, Input) and not a.source.variadic and not a.keyword and _is_floating(spec, a.source)
    }
    for output in backward.outputs:
        if output.name not in derived:
            yield (
                f"its output {output.name!r} is unknown{did_you_mean(output.name, derived)}, allowed: "
                f"{', '.join(derived) or 'none'}: one tensor of floating dtype, not by keyword alone"
            )
        elif output.optional:
            yield f"its output {output.name!r} is optional, allowed: optional=False"
        elif output.variadic:
            yield f"its output {output.name!r} is variadic, allowed: one tensor"
    yield from _dtypes(spec, backward, known | derived)


def _dtypes(spec: OpSpec, backward: OpSpec, counterparts: Mapping[str, Input | Output]) -> Iterator[str]:
    """Yield the first part of `backward` that cannot have the dtype that its counterpart has."""
    for bound in dtype_tuples(spec):
        variables: dict[str, str] = {}
        for part in tensors(backward):
            if (own := counterparts.get(part.name)) is None:
                continue
            needed = dtype_of(own.type, bound)
            if needed not in allowed_dtypes(backward, part.type):
                yield f"its {part.name!r} has the type {part.type}, which cannot be {needed}, as {own.name!r} may be"
                return
            if part.type in backward.types and variables.setdefault(part.type, needed) != needed:
                yield (
                    f"its {part.name!r} has the type {part.type}, which is {variables[part.type]} for "
                    f"another part where {own.name!r} is {needed}"
                )
                return


def _is_floating(spec: OpSpec, part: Input | Output) -> bool:
    return any("float" in dtype for dtype in allowed_dtypes(spec, part.type))
