"""Which results of a wheel came from a shared cache, and whose key signed them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from opmatrix.addons.team.signing import identities
from opmatrix.basics.errors import DistError, many
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records.step import read_name
from opmatrix.report.history import read_origins
from opmatrix.shared_cache.settings import signers


def check(paths: Paths, operators: Collection[str], cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return the field "shared_cache" of dist.json: the steps whose result is from elsewhere, by who signed it.

    Raises DistError for a result that no signer signed, where pyproject.toml names signers.
    """
    found = dict(_of_wheel(paths, operators, cells))
    lines = signers(paths)
    allowed = identities(lines)
    if lines and (unsigned := sorted(step for step, signer in found.items() if signer not in allowed)):
        groups = sorted({read_name(step).group for step in unsigned})
        raise DistError(
            f"{many(len(unsigned), 'result')} of the wheel came from a shared cache without the signature of a signer "
            f"that pyproject.toml names: {', '.join(unsigned[:3])}{', ...' * (len(unsigned) > 3)}. Compute them here, "
            f"or take signed ones: doit forget {' '.join(groups)} && doit dist"
        )
    by_signer: dict[str | None, list[str]] = {}
    for step, signer in sorted(found.items()):
        by_signer.setdefault(signer, []).append(step)
    return [{"signer": signer, "steps": steps} for signer, steps in by_signer.items()]


def _of_wheel(paths: Paths, operators: Collection[str], cells: Sequence[Cell]) -> Iterator[tuple[str, str | None]]:
    """Yield the steps of the operators, in the cells of the wheel, that did not run here, each with its signer."""
    places = {"", *(f"torch{cell.torch}" for cell in cells), *map(str, cells), *(cell.export_name for cell in cells)}
    for step, (_, signer) in read_origins(paths).items():
        name = read_name(step)
        if name.operator in operators and name.where in places:
            yield step, signer
