"""The rows torch.func.grad and torch.func.jvp of `doit compat`: gradients by torch.func, compared with backward()."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from opmatrix.signature.signature import torch_qualified
from opmatrix.torch_checks.compat_samples import (
    Compat,
    CompatSample,
    RefusedError,
    Tensors,
    is_derived,
    require_near,
    require_refused,
)
from opmatrix.torch_ops import transforms
from opmatrix.torch_ops.call import as_tuple

_BATCH = 3


def functional(compat: Compat) -> tuple[int, str]:
    """Compare torch.func.vjp, alone, of and under torch.vmap, and within another, with backward()."""
    if not compat.gradient:
        return _refuses_gradient(compat)
    count = 0
    for base in _floating_first(compat.as_called):
        places = compat.derived(base)
        if not places:
            continue
        plain = gradients(base.function, base, places)
        require_near(base, _vjp(base, places, base.tensors), plain, "in torch.func.vjp")
        count += 1
        several = [base, *(base.renamed(f"_{n}") for n in range(_BATCH - 1))]
        if not all(one.accepts(one.tensors) for one in several):
            several = [base] * _BATCH
        batch = [torch.stack([one.tensors[n] for one in several]) for n in range(len(base.tensors))]
        expected = [torch.stack(g) for g in zip(*(gradients(o.function, o, places) for o in several), strict=True)]
        if transforms.refused_vmap(compat.spec):
            continue
        inside = torch.vmap(lambda *tensors, base=base, places=places: _vjp(base, places, tensors))(*batch)
        require_near(base, inside, expected, "in torch.vmap of torch.func.vjp")
        outside = _vjp(base, places, batch, call=torch.vmap(base.call))
        require_near(base, outside, expected, "in torch.func.vjp of torch.vmap")
        if compat.gradient.is_derived_twice:
            _second(base, places)
        else:
            require_refused(lambda base=base, places=places: _second(base, places), transforms.NO_FORMULA)  # type: ignore[misc]  # mypy infers no lambda with defaults
        count += 2
    if not count:
        raise RefusedError("no case has an input of a floating dtype")
    return count, ""


def _refuses_gradient(compat: Compat) -> tuple[int, str]:
    if (found := _floating_output(compat)) is None:
        raise RefusedError("no case has a floating input and output, so it has no derivative")
    base, places = found
    if not _has_refusal(compat):
        return 1, "through operators of torch, which it consists of"
    require_refused(lambda: _vjp(base, places, base.tensors), transforms.NO_FORMULA)
    raise RefusedError(f"it {transforms.NO_FORMULA}")


def forward_mode(compat: Compat) -> tuple[int, str]:
    """Require that forward mode is refused: without a rule torch takes every tangent for zero."""
    if (found := _floating_output(compat)) is None:
        raise RefusedError("no case has a floating input and output, so it has no derivative")
    base, places = found
    if not _has_refusal(compat):
        return 1, "through operators of torch, which it consists of"

    def call(*derived: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(o for o in base.call(*_placed(base.tensors, places, derived)) if is_derived(o))

    primals = tuple(base.tensors[n] for n in places)
    with warnings.catch_warnings():  # of torch.jit.script, in torch's own rules for forward mode
        warnings.simplefilter("ignore")
        require_refused(lambda: torch.func.jvp(call, primals, primals), transforms.NO_FORWARD_MODE)
    raise RefusedError(f"it {transforms.NO_FORWARD_MODE}")


def _has_refusal(compat: Compat) -> bool:
    name = torch_qualified(compat.spec)
    return not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _floating_output(compat: Compat) -> tuple[CompatSample, list[int]] | None:
    for base in _floating_first(compat.samples):
        places = [n for n, t in enumerate(base.tensors) if is_derived(t)]
        if places and any(is_derived(o) for o in base.call(*base.tensors)):
            return base, places
    return None


def _floating_first(samples: Sequence[CompatSample]) -> list[CompatSample]:
    return sorted(samples, key=lambda one: not any(t.dtype == torch.float64 for t in one.tensors))


def _placed(tensors: Tensors, places: Sequence[int], derived: Tensors) -> list[torch.Tensor]:
    found = [*tensors]
    for place, tensor in zip(places, derived, strict=True):
        found[place] = tensor
    return found


def _weighted(outputs: Tensors) -> torch.Tensor:
    """Return the sum of squares of all floating outputs, each element times a fixed weight: its gradient is linear in
    no element alone, so that a second derivative is not zero."""
    floating = [o for o in outputs if is_derived(o)]
    return torch.stack([(o * o * _weights(o)).sum() for o in floating]).sum()


def _weights(like: torch.Tensor) -> torch.Tensor:
    """Return fixed weights without a random operation, which torch.vmap forbids."""
    numbers = torch.arange(like.numel(), dtype=torch.float64).reshape(like.shape)
    return (1 + torch.sin(numbers)).to(like.dtype)


def gradients(function: Any, base: CompatSample, places: Sequence[int]) -> list[torch.Tensor]:
    """Return the gradients that backward() gives."""
    leaves = [base.tensors[n].detach().clone().requires_grad_() for n in places]
    given = base.arguments_of(_placed(base.tensors, places, leaves))
    found = torch.autograd.grad(_weighted(as_tuple(function(*given))), leaves, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def _vjp(base: CompatSample, places: Sequence[int], tensors: Tensors, call: Any = None) -> tuple[torch.Tensor, ...]:
    """Return the gradients that torch.func gives; with `call`, of a batch."""

    def loss(*derived: torch.Tensor) -> torch.Tensor:
        outputs = (call or base.call)(*_placed(tensors, places, derived))
        if call is None:
            return _weighted(outputs)
        return torch.stack([_weighted([o[i] for o in outputs]) for i in range(_BATCH)]).sum()

    found: tuple[torch.Tensor, ...] = torch.func.grad(loss, argnums=tuple(range(len(places))))(
        *(tensors[n] for n in places)
    )
    return found


def _second(base: CompatSample, places: Sequence[int]) -> None:
    """Compare torch.func.grad within another with two calls of backward(), where the formula has a gradient."""
    leaf = base.tensors[places[0]].detach().clone().requires_grad_()

    def call(x: torch.Tensor) -> torch.Tensor:
        return _weighted(base.call(*_placed(base.tensors, places[:1], [x])))

    first = torch.autograd.grad(call(leaf), leaf, create_graph=True)[0]
    if not first.requires_grad:
        return
    expected = torch.autograd.grad((first * _weights(first)).sum(), leaf)
    found = torch.func.grad(lambda x: (torch.func.grad(call)(x) * _weights(first)).sum())(leaf.detach())
    require_near(base, [found], expected, "in torch.func.grad of torch.func.grad")
