"""Export models that use the operators of a wheel, with both exporters of torch. Needs torch, onnx and onnxscript."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import onnx_ir
from onnx import defs
from torch.onnx import symbolic_helper

from opmatrix.declaration import schema_versions
from opmatrix.lowering import dynamo_translation, legacy_symbolic
from opmatrix.lowering.call_lowering import Lowered
from opmatrix.lowering.graph import Graph
from opmatrix.spec import Lowering, OpSpec
from opmatrix.torch_library import aten_overloads
from opmatrix.wheel_runtime.operators import Shipped


@contextmanager
def symbolics(
    operators: Sequence[Shipped],
    opset: int,
    *,
    decomposed: Collection[str],
    unavailable: Collection[str],
    domains: Mapping[str, int],
) -> Iterator[None]:
    """Register every symbolic function at `opset`, and take them back. `domains` are versions of custom domains."""
    versions = chosen_versions(operators, domains)
    with ExitStack() as stack:
        for lowered in _lowered(operators, decomposed=decomposed, unavailable=unavailable):
            held = replace(lowered, function=_held_to(opset, lowered.function))
            stack.enter_context(legacy_symbolic.registered(held, opset, versions, aten_overloads.names(lowered.spec)))
        yield


def _held_to(opset: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse an export at another opset: torch takes the symbolic of the nearest one below, silently."""

    def run(g: Graph, *arguments: Any) -> Any:
        asked = getattr(getattr(symbolic_helper, "GLOBALS", None), "export_onnx_opset_version", opset)
        if asked != opset:
            g.unsupported(
                f"symbolics({opset}) are registered, and the model is exported at opset {asked}: give both one"
            )
        return function(g, *arguments)

    return run


def translation_table(
    operators: Sequence[Shipped],
    opset: int,
    *,
    decomposed: Collection[str],
    unavailable: Collection[str],
    domains: Mapping[str, int],
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translation of every operator, for exports at `opset`, and at versions of custom `domains`."""
    versions = chosen_versions(operators, domains)
    found: dict[Callable[..., Any], Callable[..., Any]] = {}
    for lowered in _lowered(operators, decomposed=decomposed, unavailable=unavailable):
        found |= dynamo_translation.table(lowered, opset, versions, aten_overloads.overloads(lowered.spec))
    return found


def complete(operators: Sequence[Shipped], model: onnx_ir.Model) -> None:
    """Write absent inputs that stand before a variadic one: the dynamo exporter's last pass takes them away where
    nothing follows, and ONNX counts them."""
    wanted = {(s.spec.onnx.domain, s.spec.onnx.op_type): _counted(s.spec) for s in operators}
    for node in onnx_ir.traversal.RecursiveGraphIterator(model.graph):
        count = wanted.get((node.domain, node.op_type), 0)
        if len(node.inputs) < count:
            node.resize_inputs(count)


def _counted(spec: OpSpec) -> int:
    """Return how many inputs a node must have: of all kinds before a variadic one, else the required ones."""
    return max((n for n, part in enumerate(spec.inputs) if part.variadic), default=0)


def domain_versions(operators: Sequence[Shipped], *, newest: bool = False) -> dict[str, int]:
    """Return, for each custom domain, the first version that has all of the operators; with `newest` the first that has
    all of their attributes as well."""
    found: dict[str, int] = {}
    for shipped in operators:
        domain, versions = shipped.spec.onnx.domain, schema_versions.versions(shipped.spec)
        found[domain] = max(found.get(domain, 1), versions[-1 if newest else 0])
    return found


def chosen_versions(operators: Sequence[Shipped], asked: Mapping[str, int]) -> dict[str, int]:
    """Return the version of each custom domain: the one that is asked for, else the first that has all operators, which
    the oldest library reads. Raises ValueError for one that an operator does not have."""
    found = domain_versions(operators)
    for domain, version in asked.items():
        if domain not in found:
            raise ValueError(f"no operator is in the domain {domain!r}; there is: {', '.join(found)}")
        for spec in (s.spec for s in operators if s.spec.onnx.domain == domain):
            if version not in spec.onnx.versions:
                allowed = ", ".join(map(str, spec.onnx.versions))
                raise ValueError(f"{spec.name} is not in version {version} of {domain!r}; it is in: {allowed}")
    return found | dict(asked)


def schemas(operators: Sequence[Shipped]) -> list[defs.OpSchema]:
    """Return the ONNX schemas of every operator, one for each version that it has one for."""
    return [s.module("schema").schema(version) for s in operators for version in schema_versions.versions(s.spec)]


def _lowered(
    operators: Sequence[Shipped], *, decomposed: Collection[str], unavailable: Collection[str]
) -> Iterator[Lowered]:
    known = {shipped.spec.name: shipped.spec for shipped in operators}
    for name in decomposed:
        if name not in known or "decomposed" not in known[name].lowerings:
            allowed = [n for n, spec in known.items() if "decomposed" in spec.lowerings]
            raise ValueError(f"{name!r} has no decomposition; there is one of: {', '.join(allowed) or 'none'}")
    for shipped in operators:
        spec = shipped.spec
        if spec.torch is None or spec.name in unavailable:
            continue
        lowering: Lowering = "decomposed" if spec.name in decomposed else "custom"
        yield Lowered(
            spec=spec,
            lowering=lowering,
            function=_bounded(_function(shipped, lowering), spec.name, spec.min_opset),
            used=tuple(known[name] for name in spec.uses),
        )


def _function(shipped: Shipped, lowering: Lowering) -> Callable[..., Any]:
    """Return the function written by hand, else the generated one."""
    for module in ("own_lowering", "lowering"):
        if module in shipped.modules and (found := getattr(shipped.module(module), lowering, None)):
            return found  # type: ignore[no-any-return]
    raise ValueError(f"{shipped.spec.name} has no lowering {lowering!r}")


def _bounded(function: Callable[..., Any], name: str, min_opset: int) -> Callable[..., Any]:
    def run(g: Graph, *arguments: Any) -> Any:
        if g.opset < min_opset:
            g.unsupported(f"{name} needs opset {min_opset} or newer, and the model is exported at {g.opset}")
        return function(g, *arguments)

    return run
