"""Check a model without running it: nodes, types, versions, and the libraries it needs. Never imports torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import onnx
import onnxruntime
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from opmatrix.declaration.load import Operator, load_operators
from opmatrix.declaration.torch_signature import OWN_ORT, has_kernel
from opmatrix.errors import OpmatrixError, UsageError
from opmatrix.matrix.cells import ORT
from opmatrix.model_check import finding
from opmatrix.model_check.custom_nodes import Builtin, faulty_nodes, node_findings, used_operators
from opmatrix.model_check.finding import Finding
from opmatrix.model_check.graph_walk import opsets
from opmatrix.model_check.shape_inference import checker_findings, inference_findings, schemas
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.version import minor, numbers

PART = "read.json"


def run(layout: Paths, *, model: Path, ort: str, into: Path) -> None:
    """Write the findings, and the libraries that a session needs. `ort` is a version that need not be installed."""
    findings: list[Finding] = []
    libraries: NeededLibraries | None = None
    error = ""
    try:
        if ort:
            parse_version(ort)  # raises before the model is read
        proto = _read(model)
        operators = load_operators(layout)
        specs = [o.spec for o in operators]
        libraries = needed_libraries(layout, [o for o in operators if o.spec in used_operators(proto, specs)])
        findings = list(_findings(proto, model, specs, libraries, ort))
    except OpmatrixError as mistake:
        error = str(mistake)
    finding.write(
        into / PART,
        findings,
        error=error,
        libraries=[str(p) for p in libraries.libraries] if libraries else [],
        own=bool(libraries and libraries.own),
        link=list(libraries.link) if libraries else [],
    )


def _read(path: Path) -> ModelProto:
    """Return the model without its external data. Raises NoModelError."""
    try:
        found = onnx.load_model(path, load_external_data=False)
    except (DecodeError, OSError) as error:
        raise NoModelError(f"{path}: no ONNX model: {error}") from error
    if not found.graph.node or not found.ir_version:
        raise NoModelError(f"{path}: no ONNX model, or one without a node")
    return found


class NoModelError(OpmatrixError, exit_code=2):
    """A file that contains no ONNX model."""


def _findings(
    proto: ModelProto, path: Path, specs: Sequence[OpSpec], libraries: NeededLibraries, ort: str
) -> Iterator[Finding]:
    imported = opsets(proto)
    known = builtin()
    nodes = list(node_findings(proto, specs, known))
    yield from nodes
    yield from libraries.findings
    external = list(_external_data(proto, path))
    yield from external
    found = schemas(used_operators(proto, specs), imported)
    types = list(inference_findings(proto, found, faulty=faulty_nodes(proto, specs, known), builtin=known))
    # The checker of onnx would only repeat what is already wrong.
    if all(f.mark != "wrong" for f in (*nodes, *external, *types)):
        yield from checker_findings(proto, path, found)
    yield from types
    for version in dict.fromkeys(v for v in (minor(onnxruntime.__version__), ort) if v):
        wrong = list(version_findings(proto.ir_version, imported.get("", 0), ort=version))
        yield from wrong
        if not wrong:
            text = f"opset {imported.get('', 0)}, IR version {proto.ir_version}: ONNX Runtime {version} reads them"
            yield finding.ok("versions", text)


def builtin() -> Builtin:
    """Return the operators that ONNX Runtime itself has."""
    return {(s.domain, s.name) for s in _state.get_all_operator_schema()}


def _external_data(proto: ModelProto, path: Path) -> Iterator[Finding]:
    """Yield the first missing file of external data."""
    for tensor in proto.graph.initializer:
        place = next((e.value for e in tensor.external_data if e.key == "location"), "")
        if place and not (path.parent / place).is_file():
            yield finding.wrong(
                "nodes",
                f"the numbers of {tensor.name!r} are in {place!r}, which does not lie beside the model",
                "Copy it along with the model, or save the model with its data within",
            )
            return


def parse_version(version: str) -> tuple[int, int]:
    """Return "1.18" as (1, 18). Raises UsageError for a malformed version, or one older than the table."""
    if not (found := re.fullmatch(r"(\d+)\.(\d+)(\.\w+)*", version)):
        raise UsageError(f"--ort {version}: no version of ONNX Runtime; write it like 1.18")
    wanted = int(found[1]), int(found[2])
    if wanted < min(map(numbers, ORT)):
        raise UsageError(
            f"--ort {version}: nothing is known of versions before {next(iter(ORT))}; known: {', '.join(ORT)}"
        )
    return wanted


def version_findings(ir: int, opset: int, *, ort: str) -> Iterator[Finding]:
    """Yield why an ONNX Runtime, which need not be installed, does not read a model; a version without a row of
    matrix/cells.py is judged by its neighbours."""
    wanted = parse_version(ort)
    older = [name for name in ORT if numbers(name) <= wanted][-1]
    newer = next((name for name in ORT if numbers(name) >= wanted), None)
    for found, what, limit in ((opset, "opset", "opset"), (ir, "IR version", "ir")):
        low = getattr(ORT[older], limit)
        high = getattr(ORT[newer], limit) if newer else None
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


def _remedy(what: str, limit: int, found: int) -> str:
    first = next((name for name, row in ORT.items() if found <= (row.opset if what == "opset" else row.ir)), None)
    install = f", or install ONNX Runtime {first} or newer" if first else ""
    if what == "opset":
        return f"Export at opset {limit} or below{install}"
    return f"Export at a lower opset: the legacy exporter then writes a lower IR version, too{install}"


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
