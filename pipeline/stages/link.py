"""Link the objects of the operators that ship into one pair of libraries."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline import unfilled
from pipeline.dist.parts import sides
from pipeline.dist.settings import Dist
from pipeline.layout import Layout
from pipeline.load import Operator
from pipeline.schema import has_kernel
from pipeline.toolchain.linked import link


def run(layout: Layout, dist: Dist, operators: Sequence[Operator]) -> None:
    """Write both libraries to build/linked/. Raises CompileError with the linker's own message, or the gate's, and
    DistError for a placeholder."""
    unfilled.refuse(layout, [o.name for o in operators])
    for made in layout.linked.glob("*.o"):  # ninja looks at time stamps alone, and this is the one thing to compile
        made.unlink()
    libraries = {side: layout.linked_library(dist.name, side) for side in sides(operators)}
    link(layout, [o.spec for o in operators if has_kernel(o.spec)], libraries, called=dist.name)
