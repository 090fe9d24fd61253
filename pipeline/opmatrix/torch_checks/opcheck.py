"""The "schema" part of register: torch.library.opcheck on the compiled library, its fake kernel and its gradient."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper

from opmatrix.basics import step_log
from opmatrix.basics.errors import RegisterError, one_line
from opmatrix.data.arrays import numpy_dtype
from opmatrix.data.case_arrays import described
from opmatrix.data.compare import EXACT, compare
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import graph_inputs, is_small_and_finite, node_inputs, sampled, shaped
from opmatrix.export.gates import registered
from opmatrix.export.generated_modules import GeneratedModules, load_generated
from opmatrix.export.signature import attributes, model_of, value_info
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import (
    attribute_values,
    callers_name,
    dtype_of,
    is_composed,
    is_mutable,
    model_dtypes,
    node_type,
    scalars,
    seed_range,
    seeds,
    torch_arguments,
    torch_qualified,
)
from opmatrix.signature.versions import version_at
from opmatrix.sizes.expressions import Size
from opmatrix.sizes.known import Known, rule_text
from opmatrix.sizes.variadic import of_model, shapes_by_input, with_outputs
from opmatrix.spec import Attribute, Case, FromKernel, Model, OpSpec, shape_of
from opmatrix.torch_checks.case_calls import CaseCall, case_call, complete, opcheck_calls
from opmatrix.torch_ops import aten_overloads, features
from opmatrix.torch_ops.call import CALL_ERRORS, ComposedCall, as_tuple, torch_call, with_attributes
from opmatrix.torch_ops.case_tensors import arguments, as_array
from opmatrix.torch_ops.load import LoadedLibrary

OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")
TRACE = "test_aot_dispatch_"  # and how: "dynamic" or "static"


def results(paths: Paths, operator: Operator, loaded: LoadedLibrary) -> list[dict[str, str]]:
    """Register the fake kernel and the gradient, and return the checks that passed. Raises RegisterError."""
    shapes, operator = replace(operator, models=shaped(operator)), replace(operator, models=sampled(operator))
    spec = operator.spec
    assert spec.torch is not None
    overridden = aten_overloads.overloads(spec) if spec.torch.overrides else ()
    generated = None if overridden else load_generated(paths, operator.name)
    calls = list(opcheck_calls(operator, complete(paths, operator, loaded, generated)))
    checks = [{"overload": str(overload), "check": "overridden"} for overload in overridden]
    if features.OPCHECK.available:
        for one in calls:
            step_log.now_running(f"opcheck of case {one.case.name}")
            called = torch_call(spec, one.model, one.arguments)
            checks += [
                {"case": one.case.name, "check": test} for test in _opcheck(operator, one, loaded.overload, called)
            ]
        reasons = dict.fromkeys(_no_test_schema(spec, model) for model in operator.models)
        checks += [{"check": "test_schema", "skipped": reason} for reason in reasons if reason]
    else:
        if generated and not spec.torch.python:  # else the fake kernel is torch's or the user's
            for one in calls:
                _compare_fake_kernel(operator, one, loaded.overload, generated.fake.fake)
                checks.append({"case": one.case.name, "check": "fake kernel"})
        skipped = (*OPCHECKS, f"{TRACE}dynamic")
        checks += [{"check": test, "skipped": features.OPCHECK.skip_reason} for test in skipped]
    if is_composed(spec):
        checks += [*_composed(operator), *_trained(operator, calls)]
    if generated:
        checks += inferred_shapes(shapes, loaded.overload, generated)
    if generated and spec.elementwise:
        from opmatrix.torch_checks import invalid_calls  # which few operators need

        checks += invalid_calls.format_results(spec, calls, loaded.overload, generated)
    return checks


def _compare_fake_kernel(
    operator: Operator, one: CaseCall, kernel: Callable[..., Any], fake: Callable[..., Any]
) -> None:
    """Compare dtypes, ranks and known sizes of the compiled and the fake kernel, where torch has no opcheck."""
    given, named = torch_call(operator.spec, one.model, one.arguments)
    made, inferred = (as_tuple(call(*given, **named)) for call in (kernel, fake))
    if len(made) != len(inferred):
        raise RegisterError(
            f"{one}: the fake kernel gives {len(inferred)} outputs, the compiled one {len(made)}. {_remedy(operator)}"
        )
    for output, a, b in zip(with_outputs(operator.spec, len(made)).outputs, made, inferred, strict=True):
        known = not isinstance(output.shape, FromKernel)
        if a.dtype != b.dtype or a.dim() != b.dim() or (known and a.shape != b.shape):
            raise RegisterError(
                f"{one}: the fake kernel gives {output.name} as {b.dtype} of shape {tuple(b.shape)}, the compiled one "
                f"as {a.dtype} of shape {tuple(a.shape)}. {_remedy(operator)}"
            )


def _opcheck(
    operator: Operator, one: CaseCall, overload: Any, called: tuple[Sequence[Any], Mapping[str, Any]]
) -> Iterator[str]:
    """Yield the name of each test of opcheck that passed."""
    tests = [test for test in OPCHECKS if test != "test_schema" or not _no_test_schema(operator.spec, one.model)]
    tests += [f"{TRACE}{one.trace}"] if one.trace else []
    with _cheap_trace():
        outcomes = torch.library.opcheck(
            overload, tuple(called[0]), dict(called[1]), test_utils=tests, raise_exception=False
        )
    for test, outcome in outcomes.items():
        if outcome != "SUCCESS":
            raise RegisterError(f"{one}: torch.library.opcheck's {test} says: {outcome}. {_remedy(operator)}")
        yield test


def _composed(operator: Operator) -> list[dict[str, str]]:
    """Check the operator that others call with each case: it returns or writes what the one in the library returns, and
    writes nothing else, and returns the arguments that its schema says. Then opcheck of the first finite case, which
    traces it: torch must find a functional form of it. Raises RegisterError."""
    spec, checks = operator.spec, []
    kinds = {"written": is_mutable(spec), "Generator": bool(seeds(spec)), "Scalar": bool(scalars(spec))}
    kind = next((name for name, has in kinds.items() if has), "fixed")
    for model in operator.models:
        call = ComposedCall(spec, model)
        finite: CaseCall | None = None
        for case in filter(described, model.cases):
            one = case_call(spec, replace(model, cases=(case,)))
            finite = finite or (one if is_small_and_finite(case) else None)
            inputs = one.arguments
            before = [[v.clone() for v in a] if isinstance(a, list) else a if a is None else a.clone() for a in inputs]
            expected, actual = as_tuple(one.function(*inputs)), as_tuple(call(*inputs))
            given = call.by_name(inputs)
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
            if problems:
                raise RegisterError(f"{one}: {callers_name(spec)}: {problems[0]}. {_remedy(operator)}")
            checks.append({"case": case.name, "check": f"{kind} arguments"})
        if finite is None or not (features.OPCHECK.available or seeds(spec)):
            continue
        name = finite.case.name
        checks += [{"case": name, "check": check} for check in _drawn(operator, finite)]
        if not features.OPCHECK.available:
            continue
        if any(a.default is None and not a.optional for a in seeds(spec).values()):
            why = "torch's default generator gives each call another seed"
            checks.append({"check": f"{TRACE}dynamic of {callers_name(spec)}", "skipped": why})
            continue
        called = call.ordered(call.by_name(finite.arguments) | dict.fromkeys(seeds(spec)))
        checked = _opcheck(operator, replace(finite, trace="dynamic"), call.overload, called)
        checks += [{"case": name, "check": f"{test} of {callers_name(spec)}"} for test in checked]
    return checks


_SEED = 2026  # of a generator; any


def _drawn(operator: Operator, one: CaseCall) -> Iterator[str]:
    """Compare calls with a generator with those of the library's operator, which get the numbers that torch itself
    draws from an equal generator: one number per call, in order. None is the default, or torch's default generator.
    Yield the name of each check that passed. Raises RegisterError."""
    spec, call, inputs = operator.spec, ComposedCall(operator.spec, one.model), one.arguments
    subject = f"{one}: {callers_name(spec)}"

    def check(what: str, seed: Attribute, value: Any, **generators: Any) -> None:
        chosen = replace(one.model, attributes={**one.model.attributes, seed.name: value})
        expected = replace(one, model=chosen).call(*one.tensors)
        actual = as_tuple(call(*inputs, **generators))
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


def _trained(operator: Operator, calls: Sequence[CaseCall]) -> Iterator[dict[str, str]]:
    """Compare the gradients through the operator that writes arguments with those of the functional one: of all inputs
    that have one, and of each while the others are frozen. Raises RegisterError."""
    spec = operator.spec

    def gradients(one: CaseCall, chosen: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        """Return the gradients of `chosen`, None for one that no output depends on."""
        outputs = [o for o in one.call(*one.tensors) if o.requires_grad]
        weights = [torch.linspace(1, 2, o.numel(), dtype=o.dtype).reshape(o.shape) for o in outputs]
        return torch.autograd.grad(outputs, chosen, weights, allow_unused=True) if outputs else (None,) * len(chosen)

    for one in calls:
        leaves = [tensor for tensor in one.tensors if tensor.requires_grad]
        for chosen in [leaves, *([leaf] for leaf in leaves if len(leaves) > 1)] if leaves else ():
            for leaf in leaves:
                leaf.requires_grad_(any(leaf is of for of in chosen))
            subject = f"{one}: {callers_name(spec)}"
            try:
                expected, actual = (gradients(replace(one, composed=composed), chosen) for composed in (False, True))
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
            yield {"case": one.case.name, "check": f"gradients through {callers_name(spec)}"}


def _first(gradient: torch.Tensor | None) -> str:
    return "none" if gradient is None else f"{gradient.flatten()[:3].tolist()} ... of shape {tuple(gradient.shape)}"


def _equal(one: Any, other: Any) -> bool:
    """Return whether two arguments or outputs have the same elements; NaN is equal to NaN."""
    if isinstance(one, list):
        return all(map(_equal, one, other))
    return one is other or bool(compare(as_array(one.detach()), as_array(other.detach()), tolerance=EXACT).ok)


def _no_test_schema(spec: OpSpec, model: Model) -> str:
    """Return why test_schema is left out for a model, or ""."""
    if any(keyword.iskeyword(a.name) for a in torch_arguments(spec)):
        return "torch cannot bind an argument that a keyword of Python names (torch 2.13)"
    if any(dtype.startswith("float8") for dtype in model_dtypes(spec, model)):
        return "with float8, which the test multiplies and torch does not (torch 2.13)"
    return ""


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


Shapes = Sequence[Sequence[Size] | None]
OPSET = 18


def inferred_shapes(
    operator: Operator, overload: Callable[..., Any], generated: GeneratedModules
) -> list[dict[str, str]]:
    """Compare the shapes that torch's fake kernel and ONNX's shape inference give with the declared rule: the sizes of
    other operators are copied, and opcheck and the export gates see them. Return the cases whose shapes agree. Raises
    RegisterError for the first one that differs."""
    spec, checks = operator.spec, []
    for model, case in [(m, c) for m in operator.models for c in m.cases]:
        fed, called = graph_inputs(spec, model, case), of_model(spec, model)
        shapes = shapes_by_input((feed.part, shape_of(feed.tensor)) for feed in fed)
        known = Known(spec=spec, shapes=shapes, attributes=attribute_values(spec, model))
        wanted = [known.output(output) for output in called.outputs]
        inferred = {"ONNX's shape inference": _onnx(spec, model, case, generated)}
        if features.OPCHECK.available:
            inferred["the fake kernel"] = _fake(spec, model, case, overload)
        for side, shapes_of_side in inferred.items():
            for output, found_shape, declared in zip(called.outputs, shapes_of_side, wanted, strict=True):
                if found_shape is None or declared is None or [*found_shape] != [*declared]:
                    raise RegisterError(
                        f"{spec.name}-{case.name}: {side} gives {output.name} the shape {_text(found_shape)}, the "
                        f"declared rule, {rule_text(output.shape)}, gives {_text(declared)}. Generate it again with: "
                        f"python -m opmatrix codegen {spec.name}"
                    )
        checks.append({"case": case.name, "check": "inference"})
    return checks


def _text(shape: Sequence[Size] | None) -> str:
    """Return a shape with ? for a size that is not known."""
    return "?" if shape is None else f"({', '.join('?' if s is None else str(s) for s in shape)})"


def _fake(spec: OpSpec, model: Model, case: Case, overload: Callable[..., Any]) -> Shapes:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with FakeTensorMode(shape_env=ShapeEnv()):
        flat = [
            torch.empty(shape_of(feed.tensor), dtype=getattr(torch, dtype_of(feed.part.type, model.types)))
            for feed in graph_inputs(spec, model, case)
        ]
        made = as_tuple(with_attributes(overload, spec, model)(*arguments(spec, case, flat)))
    return [[size if isinstance(size, int) else None for size in one.shape] for one in made]


def _onnx(spec: OpSpec, model: Model, case: Case, generated: GeneratedModules) -> Shapes:
    inputs = [
        value_info(feed.name, numpy_dtype(dtype_of(node_type(feed.part), model.types)), shape_of(feed.tensor))
        for feed in graph_inputs(spec, model, case)
    ]
    names = [output.name for output in of_model(spec, model).outputs]
    outputs = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in names]
    node = helper.make_node(spec.onnx.op_type, node_inputs(spec, model), names, domain=spec.onnx.domain)
    node.attribute.extend(attributes(spec, model))
    proto = model_of(node, inputs, outputs, name=spec.name, opset=OPSET, version=model.domain_version)
    with registered(generated.schema.schema(version_at(spec, model.domain_version))):
        inferred = onnx.shape_inference.infer_shapes(proto)
    tensors = [value.type.tensor_type for value in inferred.graph.output]
    return [
        [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
        if tensor.HasField("shape")
        else None
        for tensor in tensors
    ]
