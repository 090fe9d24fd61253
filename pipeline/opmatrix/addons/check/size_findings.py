"""The "sizes" finding: open sizes that a model does not take, and outputs of other sizes than it says. Imports onnx."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import ModelProto, NodeProto, ValueInfoProto

from opmatrix.addons.check.graph_walk import format_type, format_value, nodes
from opmatrix.addons.check.inputs import ModelInputs, inputs
from opmatrix.addons.check.sizes import differ, dims, is_name, size_of
from opmatrix.basics import finding
from opmatrix.basics.errors import one_line
from opmatrix.basics.finding import Finding

QUESTION = "sizes"
_REMEDY = (
    "The size of the example is baked in: export the model with that axis dynamic, and take sizes from the tensor "
    "(Shape and Gather), not as numbers"
)
# Their weights fix sizes, whatever the model says of an input.
WITH_WEIGHTS = re.compile(r"Conv|MatMul|Gemm|LSTM|GRU|RNN|Norm|PRelu|Einsum|Attention")


@dataclass(frozen=True, kw_only=True)
class Try:
    """Drawn inputs with which the model was run, and the error of ONNX Runtime and `where`, such as " at Add 'a'", both
    "" where it computed with them."""

    fed: ModelInputs
    error: str = ""
    where: str = ""


def size_findings(model: ModelProto, tries: Sequence[Try]) -> Iterator[Finding]:
    """Yield the open axes for which the model takes one size alone, if it ran at all."""
    ran = [t.fed.sizes for t in tries if not t.error]
    if not ran:
        return
    base = ran[0]
    varied = [s for s in base if len({t.fed.sizes[s] for t in tries}) > 1]
    frozen = [s for s in varied if len({sizes[s] for sizes in ran if sizes[s] > 1} or {1}) == 1]
    for symbol in frozen:
        failed = [t for t in tries if t.error and t.fed.sizes[symbol] != base[symbol]]
        if not failed:
            continue
        nearest = min(failed, key=lambda t: sum(t.fed.sizes[s] != base[s] for s in base))
        only = " and ".join(map(str, sorted({sizes[symbol] for sizes in ran})))
        text = f"{_of(symbol)} is open, and the model runs with {only} alone: {_failed(nearest, [symbol])}"
        if _is_of_weights(model, nearest.error):
            yield finding.note(QUESTION, f"{text}. Its weights fix this size: the model could name it")
        else:
            yield finding.wrong(QUESTION, text, _REMEDY)
    only_varied = [{symbol: sizes[symbol] for symbol in varied} for sizes in ran]
    if varied and not frozen and not any(differ(a, b) for a in only_varied for b in only_varied):
        failed = [t for t in tries if t.error]
        nearest = max(failed, key=lambda t: sum(t.fed.sizes[s] != base[s] for s in varied))
        text = f"{' and '.join(map(_of, varied))} are open, and the model does not run whenever all of them change"
        yield finding.wrong(QUESTION, f"{text}: {_failed(nearest, varied)}", _REMEDY)


def _of(symbol: str) -> str:
    return repr(symbol) if is_name(symbol) else symbol


def _failed(found: Try, symbols: Sequence[str]) -> str:
    sizes = ", ".join(f"{s} = {found.fed.sizes[s]}" for s in symbols)
    why = re.sub(r"^.*Status Message: (/\S+:\d+ .* was false\. )?", "", one_line(found.error))
    return f"with {sizes} it fails{found.where}: {why[:300]}"


def _is_of_weights(model: ModelProto, error: str) -> bool:
    """Return whether a run fails at a node that multiplies its input with a constant; a first state is no weight."""
    if not (found := re.search(r"while running (\w+) node\. Name:'([^']*)'", error)) or "initial_" in error:
        return False
    constants = {t.name for t in model.graph.initializer}
    constants |= {o for n in model.graph.node if n.op_type == "Constant" for o in n.output}

    def weighted(node: NodeProto) -> bool:
        return any(name in constants for name in node.input[1:])

    named = [node for node in nodes(model) if node.name and node.name == found[2]]
    return bool(WITH_WEIGHTS.search(found[1])) and (not named or any(map(weighted, named)))


def output_findings(model: ModelProto, fed: ModelInputs, values: Sequence[Any]) -> Iterator[Finding]:
    """Yield the outputs whose shapes contradict those that the model gives, with the sizes that its inputs have."""
    sizes = _bound(inputs(model), fed.inputs)
    for output, value in zip(model.graph.output, values, strict=True):
        if not output.type.tensor_type.HasField("shape") or not hasattr(value, "shape"):
            continue
        declared, actual = dims(output), tuple(value.shape)
        if len(declared) == len(actual):
            for dim, size in zip(declared, actual, strict=True):
                if isinstance(dim, str) and is_name(dim) and size_of(dim, sizes) is None:
                    sizes[dim] = size  # of outputs alone
        wanted = [size_of(dim, sizes) for dim in declared]
        if len(wanted) != len(actual) or any(w not in (None, n) for w, n in zip(wanted, actual, strict=True)):
            used = ", ".join(f"{s} = {n}" for s, n in sizes.items() if s in declared)
            text = f"the model says that output {output.name!r} is {format_type(output.type)}, and "
            yield finding.wrong(
                QUESTION, f"{text}{f'with {used} ' if used else ''}it is {format_value(value)}", _REMEDY
            )


def _bound(wanted: Sequence[ValueInfoProto], fed: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the names of axes, but for those that have several."""
    found: dict[str, set[int]] = {}
    for value in wanted:
        for dim, size in zip(dims(value), getattr(fed[value.name], "shape", ()), strict=False):
            if isinstance(dim, str) and is_name(dim):
                found.setdefault(dim, set()).add(size)
    return {dim: next(iter(of)) for dim, of in found.items() if len(of) == 1}
