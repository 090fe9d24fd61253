"""The licence files of a wheel: the project's, opmatrix's, and those of third-party headers compiled into it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.errors import DistError
from opmatrix.spec import Headers
from opmatrix.wheel import vendored_modules
from opmatrix.wheel.settings import TABLE, Dist

_LICENSE_NAME = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


def collect(root: Path, dist: Dist, operators: Sequence[Operator]) -> dict[str, bytes]:
    """Return the files by their paths below `.dist-info/licenses`.

    Raises DistError for a package that has headers but no licence file.
    """
    found = {file: (root / file).read_bytes() for file in dist.licenses}
    found["opmatrix/LICENSE"] = vendored_modules.LICENSE.read_bytes()
    declared = {(h.distribution or h.folder): h for o in operators for h in o.spec.headers}
    for owner, headers in sorted(declared.items()):
        files = dist.third_party.get(owner)
        if files is not None:
            found |= {f"{owner}/{Path(file).name}": (root / file).read_bytes() for file in files}
            continue
        carried = _carried(headers, root)
        if not carried and headers.distribution:
            raise DistError(
                f"the package {owner!r}, with whose headers operators are compiled, carries no licence. Keep its text "
                f"in the project, and name the file: pyproject.toml: {TABLE}: third-party-licenses = "
                f"{{{owner} = ['third_party/{owner}/LICENSE']}}"
            )
        found |= {f"{owner}/{path.name}": path.read_bytes() for path in carried}
    return found


def packages(operators: Sequence[Operator]) -> dict[str, str]:
    """Return the version of each package whose headers the operators are compiled with."""
    named = {h.distribution for o in operators for h in o.spec.headers if h.distribution}
    return {name: metadata.version(name) for name in sorted(named)}


def _carried(headers: Headers, root: Path) -> list[Path]:
    """Return the licence files in the package's metadata, or in the folder of the project that holds the headers."""
    if headers.distribution is None:
        return sorted(p for p in (root / headers.folder).glob("*") if p.is_file() and _LICENSE_NAME.match(p.name))
    files = metadata.distribution(headers.distribution).files or ()
    return [Path(str(f.locate())) for f in files if _LICENSE_NAME.match(f.name) and ".dist-info" in f.parts[0]]
