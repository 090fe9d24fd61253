"""What is said of nodes that were compared with their references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opmatrix.errors import many
from opmatrix.lowering.graph import qualified
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import called
from opmatrix.model_check.per_node_compare import NodeComparison
from opmatrix.spec import OpSpec

QUESTION, AGREES = "first node", "agrees"


def first_wrong(nodes: Sequence[NodeComparison]) -> NodeComparison | None:
    """Return the first node that differs from its reference."""
    return next((h for h in nodes if h.wrong), None)


def findings(
    nodes: Sequence[NodeComparison], operators: Sequence[OpSpec], *, differs: bool, own: bool = False, replay: str = ""
) -> Iterator[Finding]:
    """Name the first node that differs from its reference, if any.

    `differs` says whether the outputs do, `own` that only nodes of this project were compared, `replay` how the node is
    tried alone.
    """
    compared = [h for h in nodes if h.comparison]
    if found := first_wrong(nodes):
        others = sum(h.wrong for h in nodes) - 1
        more = f". {others} further node{'s differ' if others > 1 else ' differs'} as well" if others else ""
        yield finding.wrong(QUESTION, f"{found}{more}", _remedy(found, operators) + replay)
    elif differs:
        yield finding.wrong(
            QUESTION,
            f"none alone: each of {len(compared)} nodes computes what its reference does with the same numbers"
            + _nearest(compared),
            "So the model itself is another one (its exporter, a lowering), the expected outputs are not of it, "
            "or errors add up: see --rtol and --atol",
        )
    elif compared:
        whom = "the references of this project" if own else "onnx.reference and the references of this project"
        text = f"with {whom}, node by node: {many(len(compared), 'node')}"
        yield finding.ok(AGREES, text)
    if skipped := [h for h in nodes if h.skipped]:
        names = ", ".join(sorted({qualified(h.node) for h in skipped})[:5])
        yield finding.note(
            QUESTION if differs else AGREES,
            f"{many(len(skipped), 'node')} without a reference to hold against ({names}): {skipped[0].skipped}",
        )


def _nearest(compared: Sequence[NodeComparison]) -> str:
    """Return which node comes nearest to its limit."""
    worst = max(compared, key=lambda h: h.comparison.tolerance_used if h.comparison else 0, default=None)
    if worst is None or worst.comparison is None:
        return ""
    return f"; the nearest to its limit is {called(worst.node)}, {worst.comparison.tolerance_used:.0%} of it"


def _remedy(found: NodeComparison, operators: Sequence[OpSpec]) -> str:
    node = found.node
    ours = next((o for o in operators if (o.onnx.domain, o.onnx.op_type) == (node.domain, node.op_type)), None)
    if ours and ours.runtime == "kernel":
        return f"Kernel and ops/{ours.name}/reference.py differ: is the kernel built anew, and which of them is right?"
    if ours:
        return f"ONNX Runtime's own kernel and ops/{ours.name}/reference.py differ: look at the reference first"
    return (
        "No operator of this project: a fault of this ONNX Runtime, or of onnx.reference; try the node in another one"
    )
