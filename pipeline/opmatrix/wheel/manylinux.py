"""The oldest manylinux platform that libraries run on, by the policy of PyPA's auditwheel.

manylinux.json is that policy (auditwheel 6.8.2, MIT, manylinux-policy.json), reduced to x86-64 and to the libraries
that a compiler links by itself; each platform adds to those before it. We do not run auditwheel, because it searches
the machine for the libraries, and libtorch need not be there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from opmatrix.errors import DistError
from opmatrix.toolchain.elf_symbols import Symbols, newest_versions, version_text

POLICY = Path(__file__).parent / "manylinux.json"
# Comes from another package that the user installs, and is no part of a platform.
_EXTERNAL = ("libtorch_cpu.so",)


def platform(libraries: Sequence[Symbols]) -> str:
    """Return the platform tag, such as ``manylinux_2_17_x86_64``. Raises DistError if no platform fits."""
    needed = {name for found in libraries for name in found.needed} - {*_EXTERNAL}
    versions = {version for found in libraries for version in found.versions}
    symbols = {symbol for found in libraries for symbol in found.undefined | found.weak | found.versioned}
    left = {*needed, *versions}
    for policy in json.loads(POLICY.read_text(encoding="utf-8")):
        left -= {*policy["versions"], *policy["libraries"]}
        left = {name for name in left if not name.startswith("ld-linux")}
        if not left and not symbols & {*policy["forbidden"]}:
            return f"{policy['tag']}_x86_64"
    raise DistError(
        f"no manylinux platform has {', '.join(sorted(left))}, which the libraries need. Link other libraries "
        "statically, or compile on an older system"
    )


def highest(libraries: Sequence[Symbols]) -> dict[str, str]:
    """Return the newest version of each symbol family that is needed: ``{"GLIBC": "2.14", "GLIBCXX": "3.4.29"}``."""
    found = newest_versions(version for library in libraries for version in library.versions)
    return {family: version_text(version) for family, version in found.items()}
