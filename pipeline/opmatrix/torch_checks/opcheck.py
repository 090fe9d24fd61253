"""The "schema" part of register: torch.library.opcheck on the compiled library, its fake kernel and its gradient."""

from __future__ import annotations

import keyword
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import torch

from opmatrix.basics import step_log
from opmatrix.basics.errors import RegisterError, one_line
from opmatrix.data.case_arrays import case_arrays, described
from opmatrix.data.compare import EXACT, compare
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import is_small_and_finite, sampled, shaped
from opmatrix.export.generated_modules import GeneratedModules, load_generated
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import (
    callers_name,
    is_composed,
    is_mutable,
    model_dtypes,
    scalars,
    seed_range,
    seeds,
    torch_arguments,
    torch_qualified,
)
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Attribute, Case, FromKernel, Model, OpSpec
from opmatrix.torch_checks import opcheck_samples
from opmatrix.torch_checks.opcheck_samples import OpcheckSample, Trace, complete
from opmatrix.torch_ops import aten_overloads, features
from opmatrix.torch_ops.call import CALL_ERRORS, ComposedCall, as_tuple, torch_call, torch_operator, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array, tensors
from opmatrix.torch_ops.load import LoadedLibrary

OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")
TRACE = "test_aot_dispatch_"  # and how: "dynamic" or "static"


def results(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, str]]:
    """Register the fake kernel and the gradient, and return the checks that passed. Raises RegisterError."""
    shapes, operator = replace(operator, models=shaped(operator)), replace(operator, models=sampled(operator))
    assert operator.spec.torch is not None
    overridden = aten_overloads.overloads(operator.spec) if operator.spec.torch.overrides else ()
    generated = None if overridden else load_generated(paths, operator.name)
    opcheck = features.OPCHECK.available
    samples = list(complete(paths, operator, loaded, generated))
    return (
        [{"overload": str(overload), "check": "overridden"} for overload in overridden]
        + [
            {"case": sample.case.name, "check": test}
            for sample in samples
            for test in (_opcheck if opcheck else _fake_kernel)(operator, sample, loaded, generated)
        ]
        + [
            {"check": test, "skipped": features.OPCHECK.skip_reason}
            for test in (*OPCHECKS, f"{TRACE}dynamic")
            if not opcheck
        ]
        + [{"check": "test_schema", "skipped": reason} for reason in _without_schema(operator) if opcheck]
        + ([*_composed(operator), *_trained(operator, samples)] if is_composed(operator.spec) else [])
        + ([] if generated is None else opcheck_samples.results(shapes, loaded.overload, generated))
        + _formats(operator.spec, samples, loaded, generated)
    )


def _formats(
    spec: OpSpec, samples: Sequence[OpcheckSample], loaded: LoadedLibrary, generated: GeneratedModules | None
) -> list[dict[str, str]]:
    if generated is None or not spec.elementwise:
        return []
    from opmatrix.torch_checks import invalid_calls  # which few operators need

    return [*invalid_calls.format_results(spec, samples, loaded.overload, generated)]


def _fake_kernel(
    operator: Operator, sample: OpcheckSample, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[str]:
    """Compare dtypes, ranks and known sizes of the fake and the compiled kernel, where torch has no opcheck."""
    if generated is None or (operator.spec.torch and operator.spec.torch.python):
        return  # the fake kernel is torch's or the user's
    given, named = torch_call(operator.spec, sample.model, sample.arguments)
    real, fake = (as_tuple(call(*given, **named)) for call in (loaded.overload, generated.fake.fake))
    if len(real) != len(fake):
        raise RegisterError(
            f"{operator.name}-{sample.case.name}: the fake kernel gives {len(fake)} outputs, the compiled one "
            f"{len(real)}. {_remedy(operator)}"
        )
    for output, a, b in zip(with_outputs(operator.spec, len(real)).outputs, real, fake, strict=True):
        known = not isinstance(output.shape, FromKernel)
        if a.dtype != b.dtype or a.dim() != b.dim() or (known and a.shape != b.shape):
            raise RegisterError(
                f"{operator.name}-{sample.case.name}: the fake kernel gives {output.name} as {b.dtype} of shape "
                f"{tuple(b.shape)}, the compiled one as {a.dtype} of shape {tuple(a.shape)}. {_remedy(operator)}"
            )
    yield "fake kernel"


def _opcheck(
    operator: Operator, sample: OpcheckSample, loaded: LoadedLibrary, generated: GeneratedModules | None
) -> Iterator[str]:
    """Yield the name of each opcheck test that passed."""
    step_log.now_running(f"opcheck of case {sample.case.name}")
    called = torch_call(operator.spec, sample.model, sample.arguments)
    yield from _tested(operator, sample.model, sample.case, loaded.overload, called, sample.trace)


def _tested(
    operator: Operator,
    model: Model,
    case: Case,
    overload: Any,
    called: tuple[Sequence[Any], Mapping[str, Any]],
    trace: Trace | None,
) -> Iterator[str]:
    with _cheap_trace():
        outcomes = torch.library.opcheck(
            overload,
            tuple(called[0]),
            dict(called[1]),
            test_utils=[*_tests(operator, model), *([f"{TRACE}{trace}"] if trace else [])],
            raise_exception=False,
        )
    for test, outcome in outcomes.items():
        if outcome != "SUCCESS":
            problem = f"{operator.name}-{case.name}: torch.library.opcheck's {test} says: {outcome}"
            raise RegisterError(f"{problem}. {_remedy(operator)}")
        yield test


def _composed(operator: Operator) -> list[dict[str, str]]:
    """Check the operator that others call with each case: it returns or writes what the one in the library returns, and
    writes nothing else, and returns the arguments that its schema says. Then opcheck of the first finite case, which
    traces it: torch must find a functional form of it. Raises RegisterError."""
    spec, found = operator.spec, []
    for model in operator.models:
        call, functional = ComposedCall(spec, model), with_attributes(torch_operator(spec), spec, model)
        cases = [case for case in model.cases if described(case)]
        for case in cases:
            inputs = arguments(spec, case, tensors(spec, model, case, case_arrays(spec, model, case)))
            before = [_copy(one) for one in inputs]
            expected, actual = as_tuple(functional(*inputs)), as_tuple(call(*inputs))
            given = call.given(inputs)
            positional, by_name = call.ordered(given)
            foreign = call.foreign(given, call.overload(*positional, **by_name))
            problems = [f"{name} is returned as another tensor than the argument" for name in foreign]
            problems += [
                f"{output.name} is not what {torch_qualified(spec)} returns"
                for output, a, b in zip(with_outputs(spec, len(expected)).outputs, actual, expected, strict=True)
                if not _equal(a, b)
            ]
            problems += [
                f"{part.name} is written, and the schema does not say so"
                for part, a, b in zip(spec.inputs, inputs, before, strict=True)
                if not _equal(a, b)
            ]
            for problem in problems:
                raise RegisterError(
                    f"{operator.name}-{case.name}: {callers_name(spec)}: {problem}. {_remedy(operator)}"
                )
            kinds = {"written": is_mutable(spec), "Generator": bool(seeds(spec)), "Scalar": bool(scalars(spec))}
            kind = next((name for name, has in kinds.items() if has), "fixed")
            found.append({"case": case.name, "check": f"{kind} arguments"})
        for case in islice(filter(is_small_and_finite, cases), 1) if features.OPCHECK.available or seeds(spec) else ():
            inputs = arguments(spec, case, tensors(spec, model, case, case_arrays(spec, model, case)))
            found += [{"case": case.name, "check": check} for check in _drawn(operator, model, case, inputs)]
            if not features.OPCHECK.available:
                continue
            if any(a.default is None and not a.optional for a in seeds(spec).values()):
                why = "torch's default generator gives each call another seed"
                found.append({"check": f"{TRACE}dynamic of {callers_name(spec)}", "skipped": why})
                continue
            called = call.ordered(call.given(inputs) | dict.fromkeys(seeds(spec)))
            checked = _tested(operator, model, case, call.overload, called, "dynamic")
            found += [{"case": case.name, "check": f"{test} of {callers_name(spec)}"} for test in checked]
    return found


_SEED = 2026  # of a generator; any


def _drawn(operator: Operator, model: Model, case: Case, inputs: Sequence[Any]) -> Iterator[str]:
    """Compare calls with a generator with those of the library's operator, which get the numbers that torch itself
    draws from an equal generator: one number per call, in order. None is the default, or torch's default generator.
    Yield the name of each check that passed. Raises RegisterError."""
    spec, call = operator.spec, ComposedCall(operator.spec, model)
    subject = f"{operator.name}-{case.name}: {callers_name(spec)}"

    def check(what: str, seed: Attribute, value: Any, **given: Any) -> None:
        chosen = replace(model, attributes={**model.attributes, seed.name: value})
        expected = as_tuple(with_attributes(torch_operator(spec), spec, chosen)(*inputs))
        actual = as_tuple(call(*inputs, **given))
        for output, a, b in zip(with_outputs(spec, len(expected)).outputs, actual, expected, strict=True):
            if not _equal(a, b):
                returned = f"{torch_qualified(spec)} returns for {seed.name}={value}"
                raise RegisterError(f"{subject}: {what}: {output.name} is not what {returned}. {_remedy(operator)}")

    def number(generator: torch.Generator, seed: Attribute) -> int:
        made = torch.empty((), dtype=torch.int64)
        return int(made.random_(*seed_range(seed), generator=generator).item())

    for name, seed in seeds(spec).items():
        given, equal = (torch.Generator().manual_seed(_SEED) for _ in range(2))
        for count in ("first", "second"):
            check(f"the {count} call with {name}", seed, number(equal, seed), **{name: given})
        if not torch.equal(given.get_state(), equal.get_state()):
            raise RegisterError(f"{subject}: each call must draw one number from {name}. {_remedy(operator)}")
        if seed.default is not None or seed.optional:
            check(f"{name}=None", seed, seed.default, **{name: None})
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(_SEED)
                check(f"{name}=None", seed, number(torch.Generator().manual_seed(_SEED), seed), **{name: None})
        yield f"numbers of {name}"


def _trained(operator: Operator, samples: Sequence[OpcheckSample]) -> Iterator[dict[str, str]]:
    """Compare the gradients through the operator that writes arguments with those of the functional one: of all inputs
    that have one, and of each while the others are frozen. Raises RegisterError."""
    spec = operator.spec
    for sample in samples:
        call = ComposedCall(spec, sample.model)
        functional = with_attributes(torch_operator(spec), spec, sample.model)
        leaves = [tensor for tensor in sample.tensors if tensor.requires_grad]
        for chosen in [leaves, *([leaf] for leaf in leaves if len(leaves) > 1)] if leaves else ():
            for leaf in leaves:
                leaf.requires_grad_(any(leaf is one for one in chosen))
            subject = f"{operator.name}-{sample.case.name}: {callers_name(spec)}"
            try:
                expected, actual = (_gradients(f, sample.arguments, chosen) for f in (functional, call))
            except CALL_ERRORS as error:
                raise RegisterError(f"{subject}: backward() raises: {one_line(error)}. {_remedy(operator)}") from error
            for index, (a, b) in enumerate(zip(actual, expected, strict=True)):
                if (a is None) != (b is None) or not _equal(a, b):
                    raise RegisterError(
                        f"{subject}: gradient {index} of {len(chosen)} is not that of {torch_qualified(spec)}: "
                        f"{_first(a)}, expected {_first(b)}. {_remedy(operator)}"
                    )
        for leaf in leaves:
            leaf.requires_grad_()
        if leaves:
            yield {"case": sample.case.name, "check": f"gradients through {callers_name(spec)}"}


def _gradients(call: Any, given: Sequence[Any], leaves: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of `leaves`, None for one that no output depends on."""
    outputs = [o for o in as_tuple(call(*given)) if o.requires_grad]
    weights = [torch.linspace(1, 2, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outputs]
    return torch.autograd.grad(outputs, leaves, weights, allow_unused=True) if outputs else (None,) * len(leaves)


def _first(gradient: torch.Tensor | None) -> str:
    return "none" if gradient is None else f"{gradient.flatten()[:3].tolist()} ... of shape {tuple(gradient.shape)}"


def _copy(given: Any) -> Any:
    return [one.clone() for one in given] if isinstance(given, list) else None if given is None else given.clone()


def _equal(one: Any, other: Any) -> bool:
    """Return whether two arguments or outputs have the same elements; NaN is equal to NaN."""
    if isinstance(one, list):
        return all(map(_equal, one, other))
    return one is other or bool(compare(as_array(one.detach()), as_array(other.detach()), tolerance=EXACT).ok)


def _tests(operator: Operator, model: Model) -> tuple[str, ...]:
    """Return the tests of opcheck. test_schema fails for each argument with a name such as "from", and multiplies."""
    fails = _has_keywords(operator.spec) or _has_float8(operator, model)
    return tuple(test for test in OPCHECKS if test != "test_schema" or not fails)


def _without_schema(operator: Operator) -> Iterator[str]:
    """Yield why test_schema is left out for some samples."""
    if _has_keywords(operator.spec):
        yield "torch cannot bind an argument that a keyword of Python names (torch 2.13)"
    elif any(_has_float8(operator, model) for model in operator.models):
        yield "with float8, which the test multiplies and torch does not (torch 2.13)"


def _has_keywords(spec: OpSpec) -> bool:
    return any(keyword.iskeyword(a.name) for a in torch_arguments(spec))


def _has_float8(operator: Operator, model: Model) -> bool:
    return any(dtype.startswith("float8") for dtype in model_dtypes(operator.spec, model))


@contextmanager
def _cheap_trace() -> Iterator[None]:
    """Save two thirds of the time in which opcheck traces an operator with its gradient. No result depends on either:

    - the cut of the traced graph into forward and backward, for which torch searches one that saves memory, and imports
      its inductor, 1.2 CPU s (torch 2.13);
    - the cache of fake tensors, whose keys cost more than they save with symbolic sizes.

    A torch without these names is left as it is.
    """
    from torch.testing._internal.optests import aot_autograd

    config = getattr(getattr(torch, "_dynamo", None), "config", None)
    plain = getattr(aot_autograd, "default_partition", None)
    with ExitStack() as changed:
        for module, name, value in (
            (aot_autograd, "min_cut_rematerialization_partition", plain),
            (config, "fake_tensor_cache_enabled", False),
        ):
            if value is not None and hasattr(module, name):
                changed.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, value)
        yield


def _remedy(operator: Operator) -> str:
    if operator.spec.torch and operator.spec.torch.overrides:
        return f"It is torch's own: choose another case, or bound the override in ops/{operator.name}/spec.py"
    return (
        f"The binding, the fake kernel or the gradient does not do what the schema promises: fix torch_op.py, or "
        f"generate them again with: python -m opmatrix codegen {operator.name}, then compile {operator.name}"
    )
