"""The licences that a wheel carries: its own, opmatrix's, and those of headers that its libraries are compiled with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.errors import DistError
from opmatrix.spec import Headers
from opmatrix.wheel import vendored_modules
from opmatrix.wheel.settings import TABLE, Dist

_CALLED = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


def collect(root: Path, dist: Dist, operators: Sequence[Operator]) -> dict[str, bytes]:
    """Return the files, by their paths in the wheel's folder of licences. Raises DistError where one is missing."""
    found = {file: (root / file).read_bytes() for file in dist.licenses}
    found["opmatrix/LICENSE"] = vendored_modules.LICENSE.read_bytes()
    for owner, headers in sorted({(h.distribution or h.folder): h for h in declared(operators)}.items()):
        files = dist.third_party.get(owner)
        if files is not None:
            found |= {f"{owner}/{Path(file).name}": (root / file).read_bytes() for file in files}
            continue
        theirs = _carried(headers, root)
        if not theirs and headers.distribution:
            raise DistError(
                f"the package {owner!r}, with whose headers operators are compiled, carries no licence. Keep its text "
                f"in the project, and name the file: pyproject.toml: {TABLE}: third-party-licenses = "
                f"{{{owner} = ['third_party/{owner}/LICENSE']}}"
            )
        found |= {f"{owner}/{path.name}": path.read_bytes() for path in theirs}
    return found


def declared(operators: Sequence[Operator]) -> Iterator[Headers]:
    """Yield what the operators' declarations name of others."""
    for operator in operators:
        yield from operator.spec.headers


def packages(operators: Sequence[Operator]) -> dict[str, str]:
    """Return the version of each package whose headers are compiled in."""
    named = {h.distribution for h in declared(operators) if h.distribution}
    return {name: metadata.version(name) for name in sorted(named)}


def _carried(headers: Headers, root: Path) -> list[Path]:
    """Return the licences in a package's metadata, or in the folder of the project that holds the headers."""
    if headers.distribution is None:
        return sorted(p for p in (root / headers.folder).glob("*") if p.is_file() and _CALLED.match(p.name))
    files = metadata.distribution(headers.distribution).files or ()
    return [Path(str(f.locate())) for f in files if _CALLED.match(f.name) and ".dist-info" in f.parts[0]]
