"""The "first node" finding of `doit check`: the first node whose outputs differ from those of its reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opmatrix.errors import many
from opmatrix.lowering.graph import qualified
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import node_label, spec_of
from opmatrix.model_check.per_node_compare import NodeComparison
from opmatrix.spec import OpSpec
from opmatrix.testdata.compare import Comparison

QUESTION, AGREES = "first node", "agrees"


def first_wrong(nodes: Sequence[NodeComparison], *, differs: bool) -> NodeComparison | None:
    """Return the first wrong node. If the model's outputs differ from the expected ones, these decide with
    onnx.reference where float64 does not."""
    undecided = (n for n in nodes if differs and n.differs and n.judgement and n.judgement.outcome == "unknown")
    return next((n for n in nodes if n.wrong), None) or next(undecided, None)


def findings(
    nodes: Sequence[NodeComparison], operators: Sequence[OpSpec], *, differs: bool, own: bool = False
) -> Iterator[Finding]:
    """Yield the first node that differs from its reference, or that none does, and the nodes that were skipped.

    `differs`: the model's outputs differ from the expected ones. `own`: only the nodes of this project's operators were
    compared.
    """
    compared = [n.comparison for n in nodes if n.comparison]
    found = first_wrong(nodes, differs=differs)
    disputed = [n for n in nodes if n.differs and not n.wrong and n is not found]
    if found:
        others = sum(n.wrong and n is not found for n in nodes)
        more = f". {others} further node{'s differ' if others > 1 else ' differs'} as well" if others else ""
        yield finding.wrong(QUESTION, f"{found}{more}", _remedy(found, operators))
    elif differs:
        yield finding.wrong(QUESTION, *_none_wrong(compared, nodes))
    elif agreeing := len(compared) - len(disputed):
        theirs = () if own else ("onnx.reference",)
        whom = " and ".join([*theirs, *(["the references of this project"] if operators else [])])
        yield finding.ok(AGREES, f"with {whom}, node by node: {many(agreeing, 'node')}")
    if disputed:
        more = f". {len(disputed) - 1} further, too" if disputed[1:] else ""
        yield finding.note(QUESTION if differs else AGREES, f"implementations disagree at {disputed[0]}{more}")
    if failed := [n for n in nodes if n.failed]:
        more = f", and at {many(len(failed) - 1, 'further node')}" if failed[1:] else ""
        yield finding.ours(f"at {node_label(failed[0].node)}{more}: {failed[0].failed}")
    if skipped := [n for n in nodes if n.skipped]:
        names = ", ".join(sorted({qualified(n.node) for n in skipped})[:5])
        yield finding.note(
            QUESTION if differs else AGREES,
            f"{many(len(skipped), 'node')} without a reference ({names}): {skipped[0].skipped}",
        )


def _none_wrong(compared: Sequence[Comparison], nodes: Sequence[NodeComparison]) -> tuple[str, str]:
    """Return that no node differs from its reference, although the outputs differ, and what that means."""
    if len(nodes) == 1:
        (only,) = nodes
        return (
            f"{node_label(only.node)}, the only one, computes what its reference does with the same numbers: "
            "two of three agree, and the expected outputs do not",
            "So its attributes, its constants or the opset are not those of the expected outputs, or see --rtol "
            "and --atol",
        )
    return (
        f"none alone: each of {len(compared)} nodes computes what its reference does with the same numbers"
        + _nearest(nodes),
        "So the model itself is another one (its exporter, a lowering), the expected outputs are not of it, "
        " or errors add up: see --rtol and --atol. --against ORIGINAL.onnx compares it with another model",
    )


def _nearest(nodes: Sequence[NodeComparison]) -> str:
    """Return which node uses most of its tolerance."""
    used = [(n.comparison.tolerance_used, n.node) for n in nodes if n.comparison]
    share, node = max(used, key=lambda u: u[0], default=(0.0, None))
    return f"; the nearest to its limit is {node_label(node)}, {share:.0%} of it" if node else ""


def _remedy(found: NodeComparison, operators: Sequence[OpSpec]) -> str:
    spec = spec_of(found.node, operators)
    if spec and spec.runtime == "kernel":
        return f"Kernel and ops/{spec.name}/reference.py differ: is the kernel rebuilt, and which of them is right?"
    if spec:
        return f"ONNX Runtime's own kernel and ops/{spec.name}/reference.py differ: look at the reference first"
    return "No operator of this project, and a fault of this ONNX Runtime: try the node in another version"
