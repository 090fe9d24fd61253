"""The rows torch.vmap, torch.autocast, torch.Generator, torch.func.grad and torch.func.jvp of `doit compat`: compared
with plain calls, and gradients by torch.func with backward().
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opmatrix.basics.errors import CompatError
from opmatrix.signature.signature import is_mutable, seeds, torch_qualified
from opmatrix.sizes.batch import batch_axes
from opmatrix.spec import OpSpec
from opmatrix.torch_checks.case_calls import CaseCall, renamed
from opmatrix.torch_checks.compat_samples import (
    Compat,
    RefusedError,
    Tensors,
    is_derived,
    require_equal,
    require_near,
    require_refused,
)
from opmatrix.torch_ops import transforms
from opmatrix.torch_ops.call import ComposedCall, as_tuple, registered_overload

_BATCH = 3


def mapped(compat: Compat) -> tuple[int, str]:
    """Map each sample over a batch in one tensor at a time, the batch along the first or the last axis, then in all."""
    if why := transforms.refused_vmap(compat.spec):
        base = compat.samples[0]
        require_refused(lambda: torch.vmap(base.call)(*(t.expand(2, *t.shape) for t in base.tensors)), why)
        raise RefusedError(why)
    count, calls = sum(map(_mapped_sample, compat.as_called)), "one call per sample"
    if batch := batch_axes(compat.spec):
        others = dict.fromkeys(name for base in compat.samples for name in base.names if name not in batch.inputs)
        more = f"; one per sample where {' or '.join(others)} is mapped" if others else ""
        calls = f"one call for all samples{more}"
    return count, calls


def _mapped_sample(base: CaseCall) -> int:
    """Return how many calls agree."""
    batches, places = _batches(base), range(len(base.tensors))
    ways = [{n: 0 if (n + len(base.tensors)) % 2 else -1} for n in places]
    ways += [{n: -1 if n % 2 else 0 for n in places}, dict.fromkeys(places, 0)]
    if batch := batch_axes(base.spec):
        together = [n for n in places if base.names[n] in batch.inputs]
        ways += [{n: -1 if n % 2 else 0 for n in together}, dict.fromkeys(together, 0)]
    if base.composed and is_mutable(base.spec):  # torch.vmap writes no sample into a tensor without samples
        ways = [dims for dims in ways if len(dims) == len(places)]
    count = sum(_mapped(base, batches, dims) for dims in ways)
    _mapped_twice(base, batches)
    found = torch.vmap(base.call)(*(t[:0] for t in batches))
    for one, plain in zip(found, base.call(*base.tensors), strict=True):
        if one.shape != (0, *plain.shape) or one.dtype != plain.dtype:
            raise CompatError(
                f"{base.subject}: torch.vmap over an empty batch gives {one.dtype} {tuple(one.shape)}, expected "
                f"{plain.dtype} {(0, *plain.shape)}"
            )
    return count


class _Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types
    """Counts the calls of an operator's kernel."""

    def __init__(self, operator: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types
        self._operator, self.count = operator, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is self._operator
        return func(*args, **(kwargs or {}))


def _batches(base: CaseCall) -> list[torch.Tensor]:
    """Return a batch of each tensor: those of the case, then other random ones, as far as the operator accepts them
    together with those of the case."""
    found = [[*base.tensors]]
    for number in range(12 * _BATCH):
        if len(found) == _BATCH:
            break
        other = base.with_model(renamed(base.model, f"_{number}"))
        if other.accepts(other.tensors):
            found.append([*other.tensors])
    found += [found[0]] * (_BATCH - len(found))
    stacked = [torch.stack(several) for several in zip(*found, strict=True)]
    for place in range(len(stacked)):  # mapped alone, each must fit the others of the case
        for index in range(_BATCH):
            given = [*base.tensors]
            given[place] = stacked[place][index]
            if not base.accepts(given):
                stacked[place][index] = base.tensors[place]
    return stacked


def _mapped(base: CaseCall, batches: Tensors, dims: dict[int, int]) -> int:
    """Compare torch.vmap with a loop; `dims` has the axis of the batch of each tensor that has one."""
    in_dims = tuple(dims.get(n) for n in range(len(batches)))
    given = [b.movedim(0, d) if d is not None else t for b, t, d in zip(batches, base.tensors, in_dims, strict=True)]
    single = [[b[i] if d is not None else t for b, t, d in zip(batches, base.tensors, in_dims, strict=True)]
              for i in range(_BATCH)]  # fmt: skip
    if not all(base.accepts(one) for one in single):  # values that obey no rule together
        return 0
    batch = batch_axes(base.spec)
    at_once = batch is not None and all(base.names[n] in batch.inputs for n in dims)
    with _Counted(registered_overload(base.spec)) as plain:  # none, for an operator that consists of others
        base.call(*single[0])
    with _Counted(registered_overload(base.spec)) as counted:
        found = torch.vmap(base.call, in_dims=in_dims)(*given)
    if counted.count != (wanted := plain.count * (1 if at_once else _BATCH)):
        raise CompatError(
            f"{base.subject}: torch.vmap with in_dims={in_dims} calls the operator {counted.count} times, expected "
            f"{wanted}"
        )
    expected = [torch.stack(several) for several in zip(*(base.call(*one) for one in single), strict=True)]
    how = f"under torch.vmap with in_dims={in_dims}"
    require_equal(base, found, expected, f"{how}, in one call" if at_once else how, rounded=at_once)
    return 1


def _mapped_twice(base: CaseCall, batches: Tensors) -> None:
    """Compare nested calls of torch.vmap with loops."""
    twice = [torch.stack([b, b.flip(0)]) for b in batches]
    samples = [[[b[i][j] for b in twice] for j in range(_BATCH)] for i in range(2)]
    if not all(base.accepts(one) for several in samples for one in several):
        return
    rows = [[base.call(*one) for one in several] for several in samples]
    expected = [
        torch.stack([torch.stack([one[n] for one in several]) for several in rows]) for n in range(len(rows[0][0]))
    ]
    found = torch.vmap(torch.vmap(base.call))(*twice)
    require_equal(
        base, found, expected, "under torch.vmap within torch.vmap", rounded=batch_axes(base.spec) is not None
    )


_DRAWS = 3  # calls with one generator


def generators(compat: Compat) -> tuple[int, str]:
    """Call each sample with a generator in a compiled function and in torch.vmap: each call draws one number, as plain
    calls do. What would freeze a number, or draw one for all samples unasked, must be refused."""
    for base in compat.samples:
        for name in seeds(base.spec):
            call = ComposedCall(base.spec, base.model)
            expected = _drawn(base, call, name, call.overload)
            torch._dynamo.reset()  # also before the second way: what broke a graph once is not compiled again
            found = _drawn(base, call, name, torch.compile(_calling(call.overload), backend="aot_eager"))
            for n, (a, e) in enumerate(zip(found, expected, strict=True)):
                require_equal(base, a, e, f"in call {n + 1} of a compiled function with {name}")
            torch._dynamo.reset()
            try:
                _drawn(base, call, name, torch.compile(_calling(call.overload), backend="aot_eager", fullgraph=True))
            except Exception:  # of several kinds, by the version of torch
                torch._dynamo.reset()
            else:
                raise CompatError(
                    f"{base.subject}: expected an error, and it ran: {name} in torch.compile with fullgraph=True"
                )
            if not transforms.refused_vmap(base.spec):
                _mapped_generator(base, call, name, expected[0])
    return len(compat.samples) * _DRAWS, "torch.compile breaks the graph there, as at a generator of torch.rand"


def _calling(overload: Any) -> Any:
    """Return a function of Python that calls an operator, which torch.compile can begin with."""
    return lambda *positional, **by_name: overload(*positional, **by_name)


def _drawn(base: CaseCall, call: ComposedCall, name: str, function: Any) -> list[tuple[torch.Tensor, ...]]:
    """Return the outputs of calls of `function` with one generator."""
    generator, outputs = torch.Generator().manual_seed(0), []
    for _ in range(_DRAWS):
        given = call.by_name(base.arguments) | {name: generator}
        positional, by_name = call.ordered(given)
        outputs.append(as_tuple(call.outputs(given, function(*positional, **by_name))))
    return outputs


def _mapped_generator(base: CaseCall, call: ComposedCall, name: str, first: tuple[torch.Tensor, ...]) -> None:
    """Compare torch.vmap with the first call with an equal generator, which draws for all samples if it may."""
    generator = torch.Generator().manual_seed(0)
    batch = [torch.stack([tensor] * _BATCH) for tensor in base.tensors]

    def one(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return as_tuple(call(*base.arguments_of(tensors), **{name: generator}))

    found = torch.vmap(one, randomness="same")(*batch)
    wanted = [torch.stack([output] * _BATCH) for output in first]
    require_equal(base, found, wanted, f'with {name}, under torch.vmap with randomness="same"')
    require_refused(lambda: torch.vmap(one)(*batch), "randomness")


def autocast(compat: Compat) -> tuple[int, str]:
    """Call each sample under autocast: as it is, and with float32 lowered in one tensor at a time and in all."""
    count, spec = 0, compat.spec
    for base in compat.samples:
        plain = base.call(*base.tensors)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = base.call(*base.tensors)
        require_equal(base, found, plain, "under torch.autocast")
        count += 1
        lowered = [n for n, t in enumerate(base.tensors) if t.dtype == torch.float32]
        for dtype in (torch.bfloat16, torch.float16) if lowered else ():
            for places in [[n] for n in lowered] + [lowered]:
                given = [t.to(dtype) if n in places else t for n, t in enumerate(base.tensors)]
                expected = _widened(spec, base, given)
                if expected is None:  # the rounded values break a rule
                    continue
                with torch.autocast("cpu", dtype=dtype):
                    found = base.call(*given)
                names = ", ".join(base.names[n] for n in places)
                require_equal(base, found, expected, f"under torch.autocast with {names} in {dtype}")
                count += 1
    return count, ""


def _widened(spec: OpSpec, base: CaseCall, tensors: Tensors) -> tuple[torch.Tensor, ...] | None:
    """Return the outputs of a plain call with dtypes that the declaration allows: lowered tensors remain only where all
    floating ones of their type variable are lowered and the operator takes that dtype."""
    parts = {part.name: part for part in spec.inputs}
    types = [parts[name].type for name in base.names]
    widened = []
    for tensor, declared in zip(tensors, types, strict=True):
        alike = {t.dtype for t, other in zip(tensors, types, strict=True) if other == declared}
        allowed = spec.types.get(declared, (declared,))
        keeps = len(alike) == 1 and str(tensor.dtype).removeprefix("torch.") in allowed
        low = tensor.dtype in (torch.bfloat16, torch.float16)
        widened.append(tensor.float() if low and not keeps else tensor)
    return base.call(*widened) if base.accepts(widened) else None


_OF_OTHERS = "through operators of torch, which it consists of"


def functional(compat: Compat) -> tuple[int, str]:
    """Compare torch.func.vjp, alone, of and under torch.vmap, and within another, with backward()."""
    if not compat.gradient:
        if not (base := _consisting_of_no_others(compat)):
            return 1, _OF_OTHERS
        require_refused(partial(_vjp, base), transforms.NO_FORMULA)
        raise RefusedError(f"it {transforms.NO_FORMULA}")
    count = 0
    for base in _floating_first(compat.as_called):
        if not base.derived:
            continue
        require_near(base, _vjp(base), gradients(base, base.function), "in torch.func.vjp")
        count += 1
        several = [base, *(base.with_model(renamed(base.model, f"_{n}")) for n in range(_BATCH - 1))]
        if not all(one.accepts(one.tensors) for one in several):
            several = [base] * _BATCH
        batch = [torch.stack([one.tensors[n] for one in several]) for n in range(len(base.tensors))]
        expected = [torch.stack(g) for g in zip(*(gradients(one, one.function) for one in several), strict=True)]
        if transforms.refused_vmap(compat.spec):
            continue
        inside = torch.vmap(lambda *tensors, base=base: _vjp(replace(base, tensors=tensors)))(*batch)
        require_near(base, inside, expected, "in torch.vmap of torch.func.vjp")
        outside = _vjp(replace(base, tensors=batch), call=torch.vmap(base.call))
        require_near(base, outside, expected, "in torch.func.vjp of torch.vmap")
        if compat.gradient.is_derived_twice:
            _second(base)
        else:
            require_refused(lambda base=base: _second(base), transforms.NO_FORMULA)  # type: ignore[misc]  # mypy infers no lambda with defaults
        count += 2
    if not count:
        raise RefusedError("no case has an input of a floating dtype")
    return count, ""


def forward_mode(compat: Compat) -> tuple[int, str]:
    """Require that forward mode is refused: without a rule torch takes every tangent for zero."""
    if not (base := _consisting_of_no_others(compat)):
        return 1, _OF_OTHERS

    def call(*derived: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(o for o in base.call_derived(*derived) if is_derived(o))

    primals = tuple(base.tensors[n] for n in base.derived)
    with warnings.catch_warnings():  # of torch.jit.script, in torch's own rules for forward mode
        warnings.simplefilter("ignore")
        require_refused(lambda: torch.func.jvp(call, primals, primals), transforms.NO_FORWARD_MODE)
    raise RefusedError(f"it {transforms.NO_FORWARD_MODE}")


def _consisting_of_no_others(compat: Compat) -> CaseCall | None:
    """Return a case with a floating output, which is derived for all its floating inputs, or None for an operator that
    consists of others, whose derivatives torch knows. Raises RefusedError where no case has both."""
    for base in _floating_first(compat.samples):
        places = [n for n, t in enumerate(base.tensors) if is_derived(t)]
        if places and any(is_derived(o) for o in base.call(*base.tensors)):
            name = torch_qualified(compat.spec)
            of_others = torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
            return None if of_others else replace(base, derived=places)
    raise RefusedError("no case has a floating input and output, so it has no derivative")


def _floating_first(samples: Sequence[CaseCall]) -> list[CaseCall]:
    return sorted(samples, key=lambda one: not any(t.dtype == torch.float64 for t in one.tensors))


def _weighted(outputs: Tensors) -> torch.Tensor:
    """Return the sum of squares of all floating outputs, each element times a fixed weight: its gradient is linear in
    no element alone, so that a second derivative is not zero."""
    floating = [o for o in outputs if is_derived(o)]
    return torch.stack([(o * o * _weights(o)).sum() for o in floating]).sum()


def _weights(like: torch.Tensor) -> torch.Tensor:
    """Return fixed weights without a random operation, which torch.vmap forbids."""
    numbers = torch.arange(like.numel(), dtype=torch.float64).reshape(like.shape)
    return (1 + torch.sin(numbers)).to(like.dtype)


def gradients(base: CaseCall, function: Any) -> list[torch.Tensor]:
    """Return the gradients that backward() gives through `function`, the operator or a compiled call of it."""
    leaves = [base.tensors[n].detach().clone().requires_grad_() for n in base.derived]
    outputs = as_tuple(function(*base.arguments_of(base.with_derived(leaves))))
    found = torch.autograd.grad(_weighted(outputs), leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def _vjp(base: CaseCall, call: Any = None) -> tuple[torch.Tensor, ...]:
    """Return the gradients that torch.func gives; with `call`, of a batch."""

    def loss(*derived: torch.Tensor) -> torch.Tensor:
        outputs = (call or base.call)(*base.with_derived(derived))
        if call is None:
            return _weighted(outputs)
        return torch.stack([_weighted([o[i] for o in outputs]) for i in range(_BATCH)]).sum()

    gradient: Any = torch.func.grad(loss, argnums=tuple(range(len(base.derived))))
    grads: tuple[torch.Tensor, ...] = gradient(*(base.tensors[n] for n in base.derived))
    return grads


def _second(base: CaseCall) -> None:
    """Compare torch.func.grad within another with two calls of backward(), where the formula has a gradient."""
    first_alone = replace(base, derived=base.derived[:1])
    leaf = base.tensors[base.derived[0]].detach().clone().requires_grad_()

    def call(x: torch.Tensor) -> torch.Tensor:
        return _weighted(first_alone.call_derived(x))

    first = torch.autograd.grad(call(leaf), leaf, create_graph=True)[0]
    if not first.requires_grad:
        return
    expected = torch.autograd.grad((first * _weights(first)).sum(), leaf)
    found = torch.func.grad(lambda x: (torch.func.grad(call)(x) * _weights(first)).sum())(leaf.detach())
    require_near(base, [found], expected, "in torch.func.grad of torch.func.grad")
