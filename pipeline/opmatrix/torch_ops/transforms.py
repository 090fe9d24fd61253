"""What torch's transforms ask of a custom operator: its gradient, its batching rule, and its rule under autocast. A
wheel contains this module.

`torch.library.register_autograd` serves `backward()` alone: with an operator that it completes, torch.func.grad raises
an error, and torch.func.jvp silently gives zeros (torch 2.4 to 2.15). `register_gradient` serves all of torch.func.
The rules of `register_rules` follow from the declaration, and so does the `formula` of an operator whose gradient is
that of another one.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial, reduce
from inspect import signature
from typing import Any

import torch
import torch.autograd.forward_ad as forward_ad
from torch.utils import _pytree as pytree

from opmatrix.declaration.backward_operator import GRAD
from opmatrix.signature.signature import call_of, is_required, torch_arguments, torch_name, torch_qualified
from opmatrix.spec import FromKernel, Input, OpSpec
from opmatrix.torch_ops.aten_overloads import overload_named


def _of_python(*arguments: Any, **keywords: Any) -> bool:
    return pytree.tree_any_only(torch.Tensor, lambda tensor: tensor.requires_grad, (arguments, keywords))


# torch 2.6 has no such function in C++.
_any_requires_grad: Callable[..., bool] = getattr(torch._C, "_any_requires_grad", _of_python)
_alive: list[torch.library.Library] = []  # torch removes what a library registered when it is deleted

NO_FORMULA = "has no gradient: torch_op.py has no backward()"
NO_FORWARD_MODE = (
    "has no derivative in forward mode (torch.func.jvp, jacfwd, hessian): torch.library has no such rule for an "
    "operator. Take torch.func.vjp or jacrev, which use its backward()"
)


def refused_vmap(spec: OpSpec) -> str:
    """Return why torch.vmap cannot map an operator, or ""."""
    sizes = [o.name for o in spec.outputs if isinstance(o.shape, FromKernel)]
    found = ", ".join(sizes)
    return (
        f"the size of {found} depends on the data, so the results of a batch are no tensor: call it in a loop"
        if sizes
        else ""
    )


def register_rules(spec: OpSpec) -> None:
    """Register the batching rule and the autocast rule. Needs torch 2.5."""
    operator = overload_named(torch_qualified(spec))
    rule = _batching_rule(spec)
    if tensors := [a.name for a in torch_arguments(spec) if a.keyword and isinstance(a.source, Input)]:
        _implement(operator, "FuncTorchBatched", _with_keywords(rule, operator, tensors))
    else:
        torch.library.register_vmap(torch_qualified(spec), partial(rule, operator))
    _implement(operator, "AutocastCPU", _autocast_rule(spec, operator))


def register_missing_gradient(spec: OpSpec) -> None:
    """Let an operator without a gradient raise an error where torch would give zeros, in forward mode silently."""
    name = torch_qualified(spec)
    if not has_formula(name) and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        register_gradient(name, setup_context=lambda **_: None, backward=None)


def has_formula(name: str) -> bool:
    """Return whether a gradient is registered for the operator ``namespace::name``."""
    if operator := python_operator(name):  # it has a kernel for Autograd in any case
        return getattr(operator, "_backward_fn", None) is not None
    keys = ("Autograd", "AutogradCPU")
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def register_gradient(
    name: str,
    *,
    setup_context: Callable[..., None],
    backward: Callable[..., Any] | None,
    library: torch.library.Library | None = None,
) -> None:
    """Register the functions that torch.library.register_autograd takes, for the operator ``namespace::name``.

    With `library`, until that is deleted. Without `backward`, a call of it raises an error.
    """
    operator = overload_named(name)
    if python_operator(name):
        if backward:  # its definition has it as well
            torch.library.register_autograd(name, backward, setup_context=setup_context, lib=library)
        if "allow_override" not in signature(torch.library.Library.impl).parameters:  # before torch 2.8
            return
    function = _autograd_function(operator, setup_context, backward)
    below = torch._C._after_autograd_keyset

    def call(keyset: Any, *arguments: Any, **keywords: Any) -> Any:
        derived = torch.is_grad_enabled() and _any_requires_grad(*arguments, **keywords)
        if not derived and forward_ad._current_level < 0:
            with torch._C._AutoDispatchBelowAutograd():
                return operator.redispatch(keyset & below, *arguments, **keywords)
        flat, structure = pytree.tree_flatten(arguments)
        called = _Call(keyset & below, arguments, structure, keywords)
        with torch._functorch.utils.enable_single_level_autograd_function():
            outputs = function.apply(called, *flat)
        return pytree.tree_unflatten(outputs, called.outputs)

    _implement(operator, "Autograd", call, library)


class _Call:
    """One call: the keys below Autograd, arguments by keyword alone, the structure of the others and of the outputs,
    and how many values each argument is: None for one that is no list."""

    def __init__(self, keyset: Any, arguments: Sequence[Any], structure: Any, keywords: dict[str, Any]) -> None:
        self.keyset, self.structure, self.keywords = keyset, structure, keywords
        self.counts = [len(a) if isinstance(a, tuple | list) else None for a in arguments]
        self.outputs: Any = None

    def arguments(self, flat: Sequence[Any]) -> Any:
        """Return values, one for each of the flat arguments, in the structure of the arguments."""
        return pytree.tree_unflatten([*flat], self.structure)


def _autograd_function(operator: Any, setup_context: Callable[..., None], backward: Callable[..., Any] | None) -> Any:
    """Return the autograd function of an operator, as torch.library.register_autograd makes it.

    It has one level: torch.func calls it once for each of its own, below torch.autograd.Function.apply, which would
    begin with all of them again and raise an error.
    """
    declared = operator._schema.arguments
    positional = [a for a in declared if not a.kwarg_only]
    keyword_only = len(positional) < len(declared)

    def forward(ctx: Any, called: _Call, *flat: Any) -> tuple[Any, ...]:
        arguments = called.arguments(flat)
        # torch runs a forward without grad mode; what the operator does in the outer levels of torch.func is derived.
        with torch.enable_grad(), forward_ad._set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            output = operator.redispatch(called.keyset, *arguments, **called.keywords)
        # The dispatcher leaves out arguments that are equal to their defaults.
        inputs = (*arguments, *(a.default_value for a in positional[len(arguments) :]))
        keywords = {a.name: called.keywords.get(a.name, a.default_value) for a in declared if a.kwarg_only}
        needed = ctx.needs_input_grad
        ctx.needs_input_grad = _needed(needed, called)
        named = {"keyword_only_inputs": keywords} if keyword_only else {}
        setup_context(ctx=ctx, inputs=inputs, output=output, **named)
        ctx.needs_input_grad = needed
        ctx.opmatrix_call = called
        outputs, called.outputs = pytree.tree_flatten(output)
        return tuple(outputs)

    def derive(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        called = ctx.opmatrix_call
        if backward is None:
            raise RuntimeError(f"{operator} {NO_FORMULA}")
        given = pytree.tree_unflatten(grads, called.outputs)
        needed = ctx.needs_input_grad
        ctx.needs_input_grad = _needed(needed, called)
        try:
            found = backward(ctx, *(given if isinstance(given, tuple) else [given]))  # a list is of one output
        finally:
            ctx.needs_input_grad = needed
        of_one_list = isinstance(found, list) and len(called.counts) == 1 and called.counts[0] is not None
        several = isinstance(found, tuple | list) and not of_one_list
        return (None, *_flat_gradients(found if several else (found,), called.counts))

    def refuse(ctx: Any, *tangents: Any) -> None:
        raise RuntimeError(f"{operator} {NO_FORWARD_MODE}")

    functions = {"forward": forward, "backward": derive, "jvp": refuse}
    name = f"{operator.namespace}_{operator._schema.name.partition('::')[2]}"
    base = torch.autograd.function._SingleLevelFunction
    return type(name, (base,), {key: staticmethod(function) for key, function in functions.items()})


def _needed(flat: Sequence[bool], called: _Call) -> tuple[Any, ...]:
    """Return ``needs_input_grad`` in the form of the arguments: a tuple of flags for a list."""
    return tuple(tuple(one) if isinstance(one, tuple | list) else one for one in called.arguments(flat[1:]))


def _flat_gradients(gradients: Sequence[Any], counts: Sequence[int | None]) -> Iterator[Any]:
    """Yield the gradient of each flat argument; None for a list is None for each of its tensors.

    Gradients of arguments that were left out, as equal to their defaults, are None and left out as well. torch reports
    any other wrong number.
    """
    for count, gradient in zip(counts, gradients, strict=False):
        yield from [gradient] if count is None else [None] * count if gradient is None else gradient
    yield from (gradient for gradient in gradients[len(counts) :] if gradient is not None)


def _with_keywords(rule: Callable[..., Any], operator: Any, tensors: Sequence[str]) -> Callable[..., Any]:
    """Return what torch.library.register_vmap makes of a rule, which refuses an operator with tensors that are passed
    by keyword alone: torch unwraps them as if they were passed by position, behind the others."""
    from torch._functorch.autograd_function import custom_function_call_vmap_helper
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter

    positional = [a for a in operator._schema.arguments if not a.kwarg_only]

    def mapped(keyset: Any, *arguments: Any, **keywords: Any) -> Any:
        # The dispatcher leaves out arguments that are equal to their defaults.
        given = (*arguments, *(a.default_value for a in positional[len(arguments) :]))
        named = [keywords.pop(name, None) for name in tensors]
        interpreter: Any = retrieve_current_functorch_interpreter()
        return custom_function_call_vmap_helper(interpreter, partial(rule, call), call, *given, *named, **keywords)

    def call(*arguments: Any, **keywords: Any) -> Any:
        named = zip(tensors, arguments[len(positional) :], strict=True)
        return operator(*arguments[: len(positional)], **dict(named), **keywords)

    return mapped


def _batching_rule(spec: OpSpec) -> Callable[..., Any]:
    """Return the rule for torch.vmap, which gets a function that calls the operator with all tensors by position: one
    call where only inputs with the declared batch are mapped, else a call per sample, whose results are stacked."""
    refused, one_call = refused_vmap(spec), _one_call(spec)

    def rule(operator: Any, info: Any, in_dims: Sequence[Any], *arguments: Any, **keywords: Any) -> Any:
        if refused:
            raise RuntimeError(f"torch.vmap of {torch_qualified(spec)}: {refused}")
        if info.batch_size == 0:  # no sample shows the sizes of the outputs
            given = [_on_meta(a, dim) for a, dim in zip(arguments, in_dims, strict=True)]
            found, structure = pytree.tree_flatten(operator(*given, **keywords))
            outputs = [torch.empty((0, *one.shape), dtype=one.dtype) for one in found]
        elif one_call and (called := one_call(operator, info.batch_size, in_dims, arguments, keywords)):
            return called
        else:
            results = []
            for index in range(info.batch_size):
                given = [_sample(a, dim, index) for a, dim in zip(arguments, in_dims, strict=True)]
                found, structure = pytree.tree_flatten(operator(*given, **keywords))
                results.append(found)
            outputs = [torch.stack(several) for several in zip(*results, strict=True)]
        dims = pytree.tree_unflatten([0] * len(outputs), structure)
        return pytree.tree_unflatten(outputs, structure), dims

    return rule


def _one_call(spec: OpSpec) -> Callable[..., Any] | None:
    """Return a function that calls the operator once for all samples of a batch, and returns None where an input
    without the declared batch is mapped; None for an operator that declares none."""
    if not (spec.torch and spec.torch.batch):
        return None
    from opmatrix.sizes.batch import batch_axes  # which few operators need

    batch = batch_axes(spec)
    assert batch is not None
    sources = [a.source for a in torch_arguments(spec) if not a.keyword or isinstance(a.source, Input)]
    places = [batch.inputs.get(source.name) if isinstance(source, Input) else None for source in sources]
    first = next(n for n, source in enumerate(sources) if isinstance(source, Input) and is_required(source)
                 and places[n] is not None)  # fmt: skip

    def call(
        operator: Any, count: int, in_dims: Sequence[Any], arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Any:
        if any(at is None and _is_mapped(dim) for at, dim in zip(places, in_dims, strict=False)):
            return None
        sample = arguments[first] if in_dims[first] is None else arguments[first].select(in_dims[first], 0)
        length = None if batch.is_added else sample.shape[places[first]]
        merged = [
            argument if at is None else _merged(argument, dim, at, count, is_added=batch.is_added)
            for argument, dim, at in zip(arguments, in_dims, places, strict=False)
        ]
        found, structure = pytree.tree_flatten(operator(*merged, **keywords))
        outputs, dims = [], []
        for one, at, declared in zip(found, batch.outputs, spec.outputs, strict=True):
            if isinstance(declared.optional, str) and one.shape == (0,):  # its attribute is false
                one, at = one.expand(count, 0), 0
            elif length is not None:
                at %= one.dim()
                one = one.unflatten(at, (count, length))
            outputs.append(one)
            dims.append(at)
        return pytree.tree_unflatten(outputs, structure), pytree.tree_unflatten(dims, structure)

    return call


def _is_mapped(dim: Any) -> bool:
    """Return whether an argument has samples; a list has an axis, or None, for each of its items."""
    return any(map(_is_mapped, dim)) if isinstance(dim, tuple | list) else dim is not None


def _merged(argument: Any, dim: Any, at: int, count: int, *, is_added: bool) -> Any:
    """Return an argument with its samples along the axis `at`: one more, or one that is `count` times as long."""
    if isinstance(argument, tuple | list):
        dims = dim if isinstance(dim, tuple | list) else [None] * len(argument)
        return [_merged(a, d, at, count, is_added=is_added) for a, d in zip(argument, dims, strict=True)]
    if argument is None:
        return None
    first = argument.expand(count, *argument.shape) if dim is None else argument.movedim(dim, 0)
    at %= first.dim() - (not is_added)
    moved = first.movedim(0, at)
    return moved if is_added else moved.flatten(at, at + 1)


def _sample(argument: Any, dim: Any, index: int) -> Any:
    """Return one sample of an argument; `dim` is the axis of the samples, None for an argument that has none."""
    if isinstance(dim, tuple | list):
        return [_sample(a, d, index) for a, d in zip(argument, dim, strict=True)]
    return argument if dim is None else argument.select(dim, index)


def _on_meta(argument: Any, dim: Any) -> Any:
    """Return an argument without values; without the axis `dim` of the samples."""
    if isinstance(argument, tuple | list) and isinstance(dim, tuple | list):
        return [_on_meta(a, d) for a, d in zip(argument, dim, strict=True)]
    if not isinstance(argument, torch.Tensor):
        return argument
    shape = [size for axis, size in enumerate(argument.shape) if dim is None or axis != dim % argument.dim()]
    return torch.empty(shape, dtype=argument.dtype, device="meta")


def _autocast_rule(spec: OpSpec, operator: Any) -> Callable[..., Any]:
    """Return the rule for torch.autocast on the CPU: tensors of one type variable get the widest of their dtypes, and
    float32 where the operator is not declared for that. As in torch, float64 and integers remain as they are."""
    without = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)

    def rule(keyset: Any, *arguments: Any, **keywords: Any) -> Any:
        cast: dict[int | str, Any] = dict(enumerate(arguments))
        cast.update(keywords)  # by name
        for places, allowed in groups:
            values = {place: cast[place] for place in places if place in cast}
            leaves = pytree.tree_flatten(values)[0]
            if dtypes := [t.dtype for t in leaves if isinstance(t, torch.Tensor) and _is_cast(t)]:
                widest = reduce(torch.promote_types, dtypes)
                wanted = widest if widest in allowed else torch.float32
                if wanted in allowed:
                    to = partial(_cast, wanted)
                    cast |= {place: pytree.tree_map_only(torch.Tensor, to, value) for place, value in values.items()}
        with torch._C._ExcludeDispatchKeyGuard(without):
            return operator(*(cast[n] for n in range(len(arguments))), **{name: cast[name] for name in keywords})

    inputs = [
        (a.name if a.keyword else place, a.source)
        for place, a in enumerate(torch_arguments(spec))
        if isinstance(a.source, Input)
    ]
    groups = [
        ([place for place, part in inputs if part.type == declared], _floating(spec, declared))
        for declared in dict.fromkeys(part.type for part in spec.inputs)
    ]
    return rule


def _floating(spec: OpSpec, declared: str) -> set[torch.dtype]:
    """Return the floating dtypes of a declared type that the running torch has."""
    found = (getattr(torch, dtype, None) for dtype in spec.types.get(declared, (declared,)))
    return {dtype for dtype in found if isinstance(dtype, torch.dtype) and dtype.is_floating_point}


def _is_cast(tensor: torch.Tensor) -> bool:
    """Return whether torch's own rules of autocast on the CPU cast a tensor."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64 and tensor.device.type == "cpu"


def _cast(dtype: torch.dtype, tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(dtype) if _is_cast(tensor) else tensor


def _implement(operator: Any, key: str, function: Callable[..., Any], library: Any = None) -> None:
    """Register a function of a key set and arguments; with `library`, until that is deleted."""
    if library is None:
        library = torch.library.Library(operator.namespace, "IMPL")  # type: ignore[no-untyped-call]  # torch has no types
        _alive.append(library)
    schema = operator._schema
    name = str(schema.name).partition("::")[2]
    named = f"{name}.{schema.overload_name}" if schema.overload_name else name
    if not torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key):
        library.impl(named, function, key, with_keyset=True)
        return
    with warnings.catch_warnings():  # torch warns of any replacement, here of the function that custom_op registers
        warnings.simplefilter("ignore")
        library.impl(named, function, key, with_keyset=True, allow_override=True)


def python_operator(name: str) -> Any:
    """Return the object of torch.library.custom_op that defines an operator, or None."""
    with suppress(AttributeError):  # before torch 2.4
        return torch._library.custom_ops.OPDEFS.get(name)
    return None


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

    def derive(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        values = dict(zip(saved, ctx.saved_tensors, strict=True)) | dict(zip(grads, gradients, strict=True))
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
