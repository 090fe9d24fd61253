"""Check a model without running it: nodes, types, versions, and the libraries that it needs. Never imports torch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotations
from onnx import ModelProto
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from opmatrix.addons.check.functions import CycleError, Inlined, InlineError, inline, or_as_it_is
from opmatrix.addons.check.graph_walk import node_label, nodes, opsets
from opmatrix.addons.check.nodes import (
    Builtin,
    declared_operators,
    foreign_operators,
    node_faults,
    node_findings,
    used_operators,
)
from opmatrix.addons.check.repair import cycle, external_data_findings, text_findings
from opmatrix.addons.check.shapes import checker_findings, inference_findings, schemas
from opmatrix.basics import finding
from opmatrix.basics.errors import OpmatrixError, UsageError
from opmatrix.basics.finding import Finding
from opmatrix.basics.version import minor, numbers
from opmatrix.declaration.load import Operator
from opmatrix.lowering.graph import qualified
from opmatrix.project.cells import rows
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import OWN_ORT, has_kernel
from opmatrix.spec import OpSpec


@dataclass(frozen=True, kw_only=True)
class NeededLibraries:
    """`link`: groups of operators to link into one library first. `own`: the model has operators of this project."""

    own: bool
    libraries: tuple[Path, ...]
    link: tuple[tuple[str, ...], ...]
    findings: tuple[Finding, ...]


def needed_libraries(paths: Paths, operators: Sequence[Operator]) -> NeededLibraries:
    """Return the libraries for the operators of a model; a session takes each domain from one library."""
    with_kernel = sorted((o for o in operators if has_kernel(o.spec)), key=lambda o: (o.spec.onnx.domain, o.name))
    libraries: list[Path] = []
    link: list[tuple[str, ...]] = []
    findings: list[Finding] = []
    for operator in with_kernel:
        if not (path := paths.ort_library(operator.name)).is_file():
            text = f"{path.relative_to(paths.root)} is missing"
            findings.append(finding.wrong("libraries", text, f"Build it: doit compile:{operator.name}"))
    for domain, group in groupby(with_kernel, key=lambda o: o.spec.onnx.domain):
        handwritten = {o.name: OWN_ORT in o.handwritten_files for o in group}
        names = tuple(handwritten)
        by_hand = [name for name in names if handwritten[name]]
        if len(names) == 1:
            libraries.append(paths.ort_library(names[0]))
        elif by_hand:
            findings.append(
                finding.wrong(
                    "libraries",
                    f"{' and '.join(names)} share the domain {domain!r}, which a session takes from one library "
                    f"alone, and ops/{by_hand[0]} has an ort.cc of its own, so that none can be linked of them all",
                    f"Write native/{by_hand[0]}/kernel.h instead, or give it a domain of its own",
                )
            )
        else:
            libraries.append(paths.combined_library(names))
            link.append(names)
    if libraries and not findings:
        shown = ", ".join(str(p.relative_to(paths.root)) for p in libraries)
        why = f" (one of {' and '.join('+'.join(n) for n in link)}, which share a domain)" if link else ""
        findings.append(finding.ok("libraries", f"{shown}{why}"))
    return NeededLibraries(own=bool(operators), libraries=tuple(libraries), link=tuple(link), findings=tuple(findings))


def parse_version(version: str) -> tuple[int, int]:
    """Return "1.18" as (1, 18). Raises UsageError for a malformed version, or one older than the table."""
    if not (found := re.fullmatch(r"(\d+)\.(\d+)(\.\w+)*", version)):
        raise UsageError(f"--ort {version}: no version of ONNX Runtime; write it like 1.18")
    wanted = int(found[1]), int(found[2])
    known = [*rows().ort]
    if wanted < numbers(known[0]):
        raise UsageError(f"--ort {version}: versions before {known[0]} are not supported; known: {', '.join(known)}")
    return wanted


def version_findings(ir: int, opset: int, *, ort: str) -> Iterator[Finding]:
    """Yield why an ONNX Runtime, which need not be installed, does not read a model; a version without a row of
    project/cells.py is judged by its neighbours."""
    wanted, known = parse_version(ort), rows().ort
    older = [name for name in known if numbers(name) <= wanted][-1]
    newer = next((name for name in known if numbers(name) >= wanted), None)
    for found, what, limit in ((opset, "opset", "opset"), (ir, "IR version", "ir")):
        low = getattr(known[older], limit)
        high = getattr(known[newer], limit) if newer else None
        if found <= low:
            continue
        if high is not None and found > high:
            measured = ort if older == newer else newer
            yield finding.wrong(
                "versions",
                f"the model has {what} {found}, and ONNX Runtime {measured} reads {high} at most",
                _remedy(what, high, found),
            )
        else:
            between = f"{older} reads {low} at most" + (
                f", {newer} {high}" if newer else ", and nothing newer is known"
            )
            yield finding.note(
                "versions", f"whether ONNX Runtime {ort} reads {what} {found} was never measured: {between}"
            )


def _remedy(what: str, limit: int, version: int) -> str:
    limits = {name: row.opset if what == "opset" else row.ir for name, row in rows().ort.items()}
    first = next((name for name, newest in limits.items() if version <= newest), None)
    install = f", or install ONNX Runtime {first} or newer" if first else ""
    if what == "opset":
        return f"Export at opset {limit} or below{install}"
    return f"Export at a lower opset: the legacy exporter then writes a lower IR version, too{install}"


PART = "read.json"


def run(paths: Paths, *, model: Path, ort: str, libraries: Sequence[Path], into: Path) -> None:
    """Write the findings, and the libraries that a session needs. `ort` is a version that need not be installed.
    `libraries`: others' custom-op libraries, which may have the operators that nobody else has."""
    findings: list[Finding] = []
    needed: NeededLibraries | None = None
    error = ""
    try:
        if ort:
            parse_version(ort)  # raises before the model is read
        proto = _read(model)
        declared = declared_operators(paths)
        operators = declared.operators
        specs = [o.spec for o in operators]
        used = used_operators(or_as_it_is(proto, specs), specs)
        needed = needed_libraries(paths, [o for o in operators if o.spec in used])
        for name in declared.failed:
            text = f"the operator {name!r} is not considered, because its files cannot be used"
            findings.append(finding.note("nodes", f"{text}: python -m opmatrix check-declaration {name}"))
        findings += _findings(proto, model, specs, needed, ort, libraries)
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


def _read(path: Path) -> ModelProto:
    """Return the model without its external data. Raises NoModelError."""
    try:
        model = onnx.load_model(path, load_external_data=False)
    except (DecodeError, OSError) as error:
        raise NoModelError(f"{path}: no ONNX model: {error}") from error
    if not model.ir_version or not (model.graph.node or model.graph.output):
        raise NoModelError(f"{path}: no ONNX model, or one without nodes and outputs")
    return model


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
