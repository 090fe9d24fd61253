"""Link the objects of the wheel's operators into one pair of libraries."""

from __future__ import annotations

from collections.abc import Sequence

from opmatrix.declaration import source_files
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import has_kernel
from opmatrix.toolchain import symbols
from opmatrix.toolchain.link import link
from opmatrix.toolchain.ninja_file import shared_objects
from opmatrix.wheel.settings import Dist, sides


def run(paths: Paths, dist: Dist, operators: Sequence[Operator]) -> None:
    """Write both libraries to build/linked/, and the digests of their objects. Raises CompileError, and DistError for a
    placeholder."""
    source_files.require_filled(paths, [o.name for o in operators])
    specs = [o.spec for o in operators if has_kernel(o.spec)]
    libraries = {side: paths.linked_library(dist.name, side) for side in sides(operators)}
    for made in (*paths.link_folder.glob("*.o"), *libraries.values()):
        made.unlink(missing_ok=True)  # ninja compares only time stamps: what it reads may be older and yet have changed
    link(paths, specs, libraries, display_name=dist.name)
    objects = [path for spec in specs for path in paths.objects(spec.name, *shared_objects(spec))]
    symbols.write(paths.linked_record, paths.root, objects=objects, libraries=libraries.values())
