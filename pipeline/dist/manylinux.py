"""The oldest manylinux platform that libraries run on: the policy of PyPA's auditwheel, over our own reading of ELF.

manylinux.json beside this file is that policy (auditwheel 6.8.2, MIT, manylinux-policy.json), for x86-64 and for the
libraries that a compiler links by itself; each platform adds to those before it. auditwheel itself would bring two
packages and a search for libraries on this machine, where libtorch need not be.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from pipeline.errors import DistError
from pipeline.toolchain.symbols import Needs

POLICY = Path(__file__).parent / "manylinux.json"
# What the wheel's user has beside it, and so is no part of a platform.
OUTSIDE = ("libtorch_cpu.so",)


def platform(libraries: Sequence[Needs]) -> str:
    """Return the platform tag, such as ``manylinux_2_17_x86_64``. Raises DistError where none holds."""
    needed = {name for found in libraries for name in found.libraries} - {*OUTSIDE}
    versions = {version for found in libraries for version in found.versions}
    symbols = {symbol for found in libraries for symbol in found.symbols}
    left = {*needed, *versions}
    for policy in json.loads(POLICY.read_text()):
        left -= {*policy["versions"], *policy["libraries"]}
        left = {name for name in left if not name.startswith("ld-linux")}
        if not left and not symbols & {*policy["forbidden"]}:
            return f"{policy['tag']}_x86_64"
    raise DistError(
        f"no manylinux platform has {', '.join(sorted(left))}, which the libraries need. Link other libraries "
        "statically, or compile on an older system"
    )


def highest(libraries: Sequence[Needs]) -> dict[str, str]:
    """Return the highest version that is needed of each family: ``{"GLIBC": "2.14", "GLIBCXX": "3.4.29"}``."""
    found: dict[str, str] = {}
    for version in (version for needs in libraries for version in needs.versions):
        if numbered := re.fullmatch(r"([A-Z]+)_([\d.]+)", version):
            family, number = numbered.groups()
            found[family] = max(found.get(family, "0"), number, key=lambda text: [*map(int, text.split("."))])
    return dict(sorted(found.items()))
