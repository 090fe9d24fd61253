"""Export models that use the operators of a wheel, with both exporters of torch. Needs torch, onnx and onnxscript."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import onnx_ir
from onnx import defs
from torch.onnx import symbolic_helper

from pipeline.lowering import dynamo, legacy
from pipeline.lowering.arguments import Lowered
from pipeline.lowering.graph import Graph
from pipeline.models import targets
from pipeline.shipped.operators import Shipped
from pipeline.spec import Lowering, OpSpec


@contextmanager
def symbolics(
    operators: Sequence[Shipped], opset: int, *, decomposed: Collection[str], unavailable: Collection[str]
) -> Iterator[None]:
    """Register every symbolic function at `opset`, and take them back."""
    with ExitStack() as stack:
        for lowered in _lowered(operators, decomposed=decomposed, unavailable=unavailable):
            held = replace(lowered, function=_held_to(opset, lowered.function))
            stack.enter_context(legacy.registered(held, opset, targets.names(lowered.spec)))
        yield


def _held_to(opset: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Refuse an export at another opset: torch takes the symbolic of the nearest one below, silently."""

    def run(g: Graph, *arguments: Any) -> Any:
        asked = getattr(getattr(symbolic_helper, "GLOBALS", None), "export_onnx_opset_version", opset)
        if asked != opset:
            g.refuse(f"symbolics({opset}) are registered, and the model is exported at opset {asked}: give both one")
        return function(g, *arguments)

    return run


def translation_table(
    operators: Sequence[Shipped], opset: int, *, decomposed: Collection[str], unavailable: Collection[str]
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translation of every operator, for exports at `opset`."""
    found: dict[Callable[..., Any], Callable[..., Any]] = {}
    for lowered in _lowered(operators, decomposed=decomposed, unavailable=unavailable):
        found |= dynamo.table(lowered, opset, domain_versions(operators), targets.overloads(lowered.spec))
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


def domain_versions(operators: Sequence[Shipped]) -> dict[str, int]:
    """Return, for each custom domain, the first version that has all of the operators."""
    found: dict[str, int] = {}
    for shipped in operators:
        node = shipped.spec.onnx
        found[node.domain] = max(found.get(node.domain, 1), node.since_version)
    return found


def schemas(operators: Sequence[Shipped]) -> list[defs.OpSchema]:
    """Return the ONNX schema of every operator."""
    return [shipped.module("schema").schema() for shipped in operators]


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
            g.refuse(f"{name} needs opset {min_opset} or newer, and the model is exported at {g.opset}")
        return function(g, *arguments)

    return run
