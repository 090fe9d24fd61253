"""Export models that use the operators of a wheel, with both exporters of torch. Needs torch, onnx and onnxscript."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import onnx_ir
from onnx import defs
from torch.onnx import symbolic_helper

from opmatrix.lowering import dynamo, legacy
from opmatrix.lowering.call import Lowered
from opmatrix.lowering.graph import Graph
from opmatrix.signature import versions as schema_versions
from opmatrix.spec import Lowering
from opmatrix.torch_ops import aten_overloads
from opmatrix.wheel.runtime.operators import WheelOperator


@contextmanager
def symbolics(
    operators: Sequence[WheelOperator],
    opset: int,
    *,
    decomposed: Collection[str],
    unavailable: Collection[str],
    domains: Mapping[str, int],
) -> Iterator[None]:
    """Register all symbolic functions at `opset` while the block runs. `domains` are versions of custom domains."""
    versions = chosen_versions(operators, domains)
    with ExitStack() as stack:
        for lowered in _lowered(operators, decomposed=decomposed, unavailable=unavailable):
            names = aten_overloads.names(lowered.spec)
            lowered = replace(lowered, function=_only_at(opset, lowered.function))
            stack.enter_context(legacy.registered(lowered, opset, versions, names))
        yield


def _only_at(opset: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Reject an export at another opset, for which torch would silently use the symbolic of the nearest lower one."""

    def run(g: Graph, *arguments: Any) -> Any:
        asked = getattr(getattr(symbolic_helper, "GLOBALS", None), "export_onnx_opset_version", opset)
        if asked != opset:
            g.unsupported(
                f"symbolics({opset}) are registered, and the model is exported at opset {asked}: give both one"
            )
        return function(g, *arguments)

    return run


def translation_table(
    operators: Sequence[WheelOperator],
    opset: int,
    *,
    decomposed: Collection[str],
    unavailable: Collection[str],
    domains: Mapping[str, int],
) -> dict[Callable[..., Any], Callable[..., Any]]:
    """Return the translations of all operators for exports at `opset`. `domains` are versions of custom domains."""
    versions = chosen_versions(operators, domains)
    translations: dict[Callable[..., Any], Callable[..., Any]] = {}
    for lowered in _lowered(operators, decomposed=decomposed, unavailable=unavailable):
        translations |= dynamo.table(lowered, opset, versions, aten_overloads.overloads(lowered.spec))
    return translations


def complete(operators: Sequence[WheelOperator], model: onnx_ir.Model) -> None:
    """Add absent inputs before a variadic one: ONNX counts them, and the dynamo exporter removes them at the end of a
    node."""
    required = {
        (s.spec.onnx.domain, s.spec.onnx.op_type): index
        for s in operators
        for index, part in enumerate(s.spec.inputs)
        if part.variadic
    }
    for node in onnx_ir.traversal.RecursiveGraphIterator(model.graph):
        count = required.get((node.domain, node.op_type), 0)
        if len(node.inputs) < count:
            node.resize_inputs(count)


def domain_versions(operators: Sequence[WheelOperator], *, newest: bool = False) -> dict[str, int]:
    """Return, for each custom domain, the first version with all of the operators; with `newest` also with all of their
    attributes."""
    by_domain: dict[str, int] = {}
    for shipped in operators:
        domain, versions = shipped.spec.onnx.domain, schema_versions.versions(shipped.spec)
        by_domain[domain] = max(by_domain.get(domain, 1), versions[-1 if newest else 0])
    return by_domain


def chosen_versions(operators: Sequence[WheelOperator], asked: Mapping[str, int]) -> dict[str, int]:
    """Return the version of each custom domain: the one in `asked`, else the first with all operators, which the oldest
    library reads. Raises ValueError for a version that an operator is not in."""
    found = domain_versions(operators)
    for domain, version in asked.items():
        if domain not in found:
            raise ValueError(f"no operator is in the domain {domain!r}; there is: {', '.join(found)}")
        for spec in (s.spec for s in operators if s.spec.onnx.domain == domain):
            if version not in spec.onnx.versions:
                allowed = ", ".join(map(str, spec.onnx.versions))
                raise ValueError(f"{spec.name} is not in version {version} of {domain!r}; it is in: {allowed}")
    return found | dict(asked)


def schemas(operators: Sequence[WheelOperator]) -> list[defs.OpSchema]:
    """Return the ONNX schemas of every operator, one for each version of its schema."""
    return [s.module("schema").schema(version) for s in operators for version in schema_versions.versions(s.spec)]


def _lowered(
    operators: Sequence[WheelOperator], *, decomposed: Collection[str], unavailable: Collection[str]
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
            function=_function(shipped, lowering),
            used=tuple(known[name] for name in spec.uses),
        )


def _function(shipped: WheelOperator, lowering: Lowering) -> Callable[..., Any]:
    """Return the handwritten function, else the generated one, for opsets from the operator's minimum on."""
    modules = [shipped.module(name) for name in ("own_lowering", "lowering") if name in shipped.modules]
    function = next((f for module in modules if (f := getattr(module, lowering, None))), None)
    name, min_opset = shipped.spec.name, shipped.spec.min_opset
    if not function:
        raise ValueError(f"{name} has no lowering {lowering!r}")

    def run(g: Graph, *arguments: Any) -> Any:
        if g.opset < min_opset:
            g.unsupported(f"{name} needs opset {min_opset} or newer, and the model is exported at {g.opset}")
        return function(g, *arguments)

    return run
