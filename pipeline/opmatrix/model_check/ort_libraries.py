"""The "libraries" finding of `doit check`: the custom-op libraries that a session of a model needs.

A session takes each domain from one library. So operators that share a domain are linked into one library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import OWN_ORT, has_kernel
from opmatrix.model_check import finding
from opmatrix.model_check.finding import Finding
from opmatrix.project.paths import Paths


@dataclass(frozen=True, kw_only=True)
class NeededLibraries:
    """`link`: groups of operators to link into one library first. `own`: the model has operators of this project."""

    own: bool
    libraries: tuple[Path, ...]
    link: tuple[tuple[str, ...], ...]
    findings: tuple[Finding, ...]


def needed_libraries(paths: Paths, operators: Sequence[Operator]) -> NeededLibraries:
    """Return the libraries for the operators of a model."""
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
