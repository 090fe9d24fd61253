"""setup_context() and backward() of an operator whose gradient another operator computes. A wheel contains this
module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opmatrix.declaration.backward_operator import GRAD
from opmatrix.declaration.torch_signature import call_of, torch_arguments, torch_name, torch_qualified
from opmatrix.spec import Input, OpSpec
from opmatrix.torch_library.transforms import overload_named


def formula(spec: OpSpec, backward: OpSpec) -> tuple[Callable[..., None], Callable[..., Any]]:
    """Return the functions that torch.library.register_autograd takes; backward() calls the operator `backward`."""
    declared = torch_arguments(spec)
    positional = [a.source for a in declared if not a.keyword]
    grads = [f"{GRAD}{output.name}" for output in spec.outputs]
    saved = [i.name for i in backward.inputs if i.name not in grads]
    given = {output.name: n for n, output in enumerate(backward.outputs)}
    taken = [i.name for i in backward.inputs]
    unused = [o.name for o in spec.outputs if f"{GRAD}{o.name}" not in taken]

    def setup_context(
        ctx: Any, inputs: Sequence[Any], output: Any, keyword_only_inputs: dict[str, Any] | None = None
    ) -> None:
        values = dict(zip((source.name for source in positional), inputs, strict=True))
        values |= {a.source.name: (keyword_only_inputs or {})[a.name] for a in declared if a.keyword}
        values |= dict(zip((o.name for o in spec.outputs), _as_tuple(output), strict=True))
        if unused:  # else torch would take the gradient through these outputs for 0
            ctx.mark_non_differentiable(*(values[name] for name in unused))
        ctx.save_for_backward(*(values[name] for name in saved))
        ctx.attributes = {torch_name(a): values[a.name] for a in backward.attributes}
        ctx.absent = [isinstance(source, Input) and values[source.name] is None for source in positional]

    def derive(ctx: Any, *found: Any) -> tuple[Any, ...]:
        values = dict(zip(saved, ctx.saved_tensors, strict=True)) | dict(zip(grads, found, strict=True))
        arguments, named = call_of(backward, ctx.attributes)([values[i.name] for i in backward.inputs])
        outputs = _as_tuple(overload_named(torch_qualified(backward))(*arguments, **named))
        places = [given.get(f"{GRAD}{source.name}") for source in positional]
        return tuple(
            None if place is None or absent else outputs[place]
            for place, absent in zip(places, ctx.absent, strict=True)
        )

    return setup_context, derive


def _as_tuple(returned: Any) -> Sequence[Any]:
    return returned if isinstance(returned, tuple | list) else (returned,)
