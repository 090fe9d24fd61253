"""Check a model without running it: nodes, types, versions, and the libraries it needs. Never imports torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import ModelProto
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from opmatrix.errors import OpmatrixError
from opmatrix.lowering.graph import qualified
from opmatrix.model_check import finding
from opmatrix.model_check.custom_nodes import (
    Builtin,
    declared_operators,
    foreign_operators,
    node_faults,
    node_findings,
    used_operators,
)
from opmatrix.model_check.external_data import external_data_findings, text_findings
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import node_label, nodes, opsets
from opmatrix.model_check.inline_functions import CycleError, Inlined, InlineError, inline, or_as_it_is
from opmatrix.model_check.repair_graph import cycle
from opmatrix.model_check.session_needs import NeededLibraries, needed_libraries, parse_version, version_findings
from opmatrix.model_check.shape_inference import checker_findings, inference_findings, schemas
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.version import minor

PART = "read.json"


def run(layout: Paths, *, model: Path, ort: str, libraries: Sequence[Path], into: Path) -> None:
    """Write the findings, and the libraries that a session needs. `ort` is a version that need not be installed.
    `libraries`: others' custom-op libraries, which may have the operators that nobody else has."""
    findings: list[Finding] = []
    needed: NeededLibraries | None = None
    error = ""
    try:
        if ort:
            parse_version(ort)  # raises before the model is read
        proto = _read(model)
        declared = declared_operators(layout)
        operators = declared.operators
        specs = [o.spec for o in operators]
        used = used_operators(or_as_it_is(proto, specs), specs)
        needed = needed_libraries(layout, [o for o in operators if o.spec in used])
        findings = [*_unusable(declared.failed), *_findings(proto, model, specs, needed, ort, libraries)]
    except OpmatrixError as mistake:
        error = str(mistake)
    finding.write(
        into / PART,
        findings,
        error=error,
        libraries=[str(p) for p in (*(needed.libraries if needed else ()), *libraries)],
        own=bool(needed and needed.own),
        link=list(needed.link) if needed else [],
    )


def _unusable(failed: Iterable[str]) -> Iterator[Finding]:
    for name in failed:
        text = f"the operator {name!r} is not considered, because its files cannot be used"
        yield finding.note("nodes", f"{text}: python -m opmatrix check-declaration {name}")


def _read(path: Path) -> ModelProto:
    """Return the model without its external data. Raises NoModelError."""
    try:
        found = onnx.load_model(path, load_external_data=False)
    except (DecodeError, OSError) as error:
        raise NoModelError(f"{path}: no ONNX model: {error}") from error
    if not found.ir_version or not (found.graph.node or found.graph.output):
        raise NoModelError(f"{path}: no ONNX model, or one without nodes and outputs")
    return found


class NoModelError(OpmatrixError, exit_code=2):
    """A file that contains no ONNX model."""


def _findings(
    proto: ModelProto,
    path: Path,
    specs: Sequence[OpSpec],
    needed: NeededLibraries,
    ort: str,
    libraries: Sequence[Path],
) -> Iterator[Finding]:
    imported = opsets(proto)
    try:
        yield from _of_nodes(inline(proto, specs), path, specs, needed, libraries)
    except CycleError as error:
        yield finding.wrong("nodes", str(error), "Export it again")
    except InlineError as error:
        yield finding.note("nodes", f"the nodes are not checked: {error}")
    for version in dict.fromkeys(v for v in (minor(onnxruntime.__version__), ort) if v):
        wrong = list(version_findings(proto.ir_version, imported.get("", 0), ort=version))
        yield from wrong
        if not wrong:
            text = f"opset {imported.get('', 0)}, IR version {proto.ir_version}: ONNX Runtime {version} reads them"
            yield finding.ok("versions", text)


def _of_nodes(
    inlined: Inlined, path: Path, specs: Sequence[OpSpec], needed: NeededLibraries, libraries: Sequence[Path]
) -> Iterator[Finding]:
    """Yield the findings for the nodes, their libraries and their types."""
    proto, known = inlined.model, builtin()
    if libraries:
        theirs = foreign_operators(proto, specs, known)
        known |= theirs
    faults = node_faults(inlined, specs, known)
    of_nodes = list(node_findings(inlined, specs, faults))
    yield from of_nodes
    if libraries:
        yield from _foreign(proto, theirs, libraries)
    yield from needed.findings
    yield from text_findings(proto)
    if sparse := [tensor.values.name for tensor in inlined.original.graph.sparse_initializer]:
        text = f"the constants {', '.join(map(repr, sparse[:5]))} are sparse, which the operators of ONNX do not take"
        yield finding.note("nodes", f"{text}. ONNX Runtime makes them dense")
    external = list(external_data_findings(proto, path))
    yield from external
    if around := cycle(proto.graph):
        labels = [f"{node_label(node)} gives {value!r}" for node, value in around]
        chain = " to ".join([*labels, f"the first of these {len(labels)}" if labels[1:] else "itself"])
        yield finding.wrong("nodes", f"a cycle, which ONNX forbids: {chain}", "No order of these nodes runs: cut it")
        return
    faulty = {node_label(node) for group in faults.values() for node in group}
    found = schemas(used_operators(proto, specs), opsets(proto))
    types = list(inference_findings(proto, found, faulty=faulty, builtin=known))
    # The checker of onnx would only repeat what is already wrong.
    if all(f.mark != "wrong" for f in (*of_nodes, *external, *types)):
        yield from checker_findings(inlined.to_check, path, found)
    yield from types


def _foreign(proto: ModelProto, operators: Builtin, libraries: Sequence[Path]) -> Iterator[Finding]:
    """Yield which nodes the libraries of others run, and that nothing judges them."""
    names = ", ".join(p.name for p in libraries)
    counts = Counter(qualified(node) for node in nodes(proto) if (node.domain, node.op_type) in operators)
    if counts:
        found = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
        yield finding.note("libraries", f"{names} must have {found}; they are run, but not compared: no reference")
    else:
        yield finding.note("libraries", f"{names}: the model has no node that needs one")


def builtin() -> set[tuple[str, str]]:
    """Return the operators that ONNX Runtime itself has."""
    return {(s.domain, s.name) for s in _state.get_all_operator_schema()}
