"""Link the objects of the wheel's operators into one pair of libraries."""

from __future__ import annotations

from collections.abc import Sequence

from opmatrix.declaration import placeholders
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import has_kernel
from opmatrix.project.paths import Paths
from opmatrix.toolchain.link_operators import link
from opmatrix.wheel.inputs import sides
from opmatrix.wheel.settings import Dist


def run(layout: Paths, dist: Dist, operators: Sequence[Operator]) -> None:
    """Write both libraries to build/linked/. Raises CompileError, and DistError for a placeholder."""
    placeholders.require_filled(layout, [o.name for o in operators])
    for made in layout.link_folder.glob("*.o"):  # compile it again: ninja compares only time stamps
        made.unlink()
    libraries = {side: layout.linked_library(dist.name, side) for side in sides(operators)}
    link(layout, [o.spec for o in operators if has_kernel(o.spec)], libraries, display_name=dist.name)
