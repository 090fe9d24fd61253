"""The "libraries" and "versions" findings of `doit check`: what a session of a model needs. Imports neither runtime."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_ORT, has_kernel
from opmatrix.errors import UsageError
from opmatrix.matrix.cells import rows
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.project.paths import Paths
from opmatrix.version import numbers


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
    matrix/cells.py is judged by its neighbours."""
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


def _remedy(what: str, limit: int, found: int) -> str:
    limits = {name: row.opset if what == "opset" else row.ir for name, row in rows().ort.items()}
    first = next((name for name, newest in limits.items() if found <= newest), None)
    install = f", or install ONNX Runtime {first} or newer" if first else ""
    if what == "opset":
        return f"Export at opset {limit} or below{install}"
    return f"Export at a lower opset: the legacy exporter then writes a lower IR version, too{install}"
