"""Which results came from a shared cache, and by whose signature: for the report and the metadata of a wheel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from opmatrix.basics.files import write_text
from opmatrix.project.paths import Paths

Origins = Mapping[str, tuple[str, str | None]]
"""By the name of a step: the address of the shared cache that its result came from, and who signed it."""


def write(paths: Paths, origins: Origins) -> None:
    """Write the origins for `read`. The engine does, because a step cannot read the state that doit has open."""
    if origins or paths.origins.exists():
        write_text(paths.origins, json.dumps(dict(sorted(origins.items())), indent=0) + "\n")


def read(paths: Paths) -> Origins:
    """Return the origins; none where the file is not valid."""
    try:
        found = json.loads(paths.origins.read_text(encoding="utf-8"))
        return {step: (str(url), None if signer is None else str(signer)) for step, (url, signer) in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def as_json(origins: Origins) -> list[dict[str, Any]]:
    """Return an object for each address and signer, with the steps, for report.json."""
    groups: dict[tuple[str, str | None], list[str]] = {}
    for step, origin in sorted(origins.items()):
        groups.setdefault(origin, []).append(step)
    return [{"from": url, "signer": signer, "steps": steps} for (url, signer), steps in groups.items()]
