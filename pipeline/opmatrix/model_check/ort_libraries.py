"""Which custom-op libraries a session of a model needs. Pure but for looking whether they are there.

A session takes each domain from one library alone. Operators of different domains keep their own libraries; of those
that share one, a library is linked that holds them all.
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
class Needed:
    """The libraries; `link` are the groups of operators of which one must be linked first, as ``a+b``.

    `own` is whether there are operators of this project at all, whoever's kernel computes them.
    """

    own: bool

    libraries: tuple[Path, ...]
    link: tuple[tuple[str, ...], ...]
    findings: tuple[Finding, ...]


def needed(layout: Paths, operators: Sequence[Operator]) -> Needed:
    """Return what the operators of a model need."""
    ours = sorted((o for o in operators if has_kernel(o.spec)), key=lambda o: (o.spec.onnx.domain, o.name))
    libraries: list[Path] = []
    link: list[tuple[str, ...]] = []
    findings = [f for o in ours for f in _missing(layout, o)]
    for domain, together in groupby(ours, key=lambda o: o.spec.onnx.domain):
        group = list(together)
        names = tuple(o.name for o in group)
        by_hand = [o.name for o in group if OWN_ORT in o.handwritten_files]
        if len(group) == 1:
            libraries.append(layout.ort_library(names[0]))
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
            libraries.append(layout.combined_library(names))
            link.append(names)
    if libraries and not findings:
        shown = ", ".join(str(p.relative_to(layout.root)) for p in libraries)
        why = f" (one of {' and '.join('+'.join(n) for n in link)}, which share a domain)" if link else ""
        findings.append(finding.ok("libraries", f"{shown}{why}"))
    return Needed(own=bool(operators), libraries=tuple(libraries), link=tuple(link), findings=tuple(findings))


def _missing(layout: Paths, operator: Operator) -> list[Finding]:
    path = layout.ort_library(operator.name)
    if path.is_file():
        return []
    return [
        finding.wrong(
            "libraries", f"{path.relative_to(layout.root)} is missing", f"Build it: doit compile:{operator.name}"
        )
    ]
