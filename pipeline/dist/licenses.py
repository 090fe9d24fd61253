"""The licences that a wheel carries: its own, opmatrix's, and those of headers that its libraries are compiled with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path

from pipeline.dist import vendor
from pipeline.dist.settings import TABLE, Dist
from pipeline.errors import DistError
from pipeline.load import Operator
from pipeline.spec import Headers

_CALLED = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


def collect(root: Path, dist: Dist, operators: Sequence[Operator]) -> dict[str, bytes]:
    """Return the files, by their paths in the wheel's folder of licences. Raises DistError where one is missing."""
    found = {file: (root / file).read_bytes() for file in dist.licenses}
    found["opmatrix/LICENSE"] = vendor.LICENSE.read_bytes()
    for owner, headers in sorted({(h.distribution or h.folder): h for h in declared(operators)}.items()):
        files = dist.third_party.get(owner)
        if files is not None:
            found |= {f"{owner}/{Path(file).name}": (root / file).read_bytes() for file in files}
            continue
        theirs = list(_of_package(headers.distribution) if headers.distribution else _of_folder(root / headers.folder))
        if not theirs and headers.distribution:
            raise DistError(
                f"the package {owner!r}, with whose headers operators are compiled, carries no licence. Keep its text in "
                f"the project, and name the file: pyproject.toml: {TABLE}: third-party-licenses = "
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


def _of_package(name: str) -> Iterator[Path]:
    for file in metadata.distribution(name).files or ():
        if _CALLED.match(file.name) and ".dist-info" in file.parts[0]:
            yield Path(str(file.locate()))


def _of_folder(folder: Path) -> Iterator[Path]:
    yield from sorted(p for p in folder.glob("*") if p.is_file() and _CALLED.match(p.name))
