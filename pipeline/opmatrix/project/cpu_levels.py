"""The levels of x86-64 (System V ABI, x86-64 psABI, section 3.1.1) for which kernels are compiled, and which of them
this processor has."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Set
from functools import cache
from pathlib import Path

from opmatrix.basics.errors import OpmatrixError

# The instructions that each level adds, as Linux names them in /proc/cpuinfo; x86-64 itself is level 1.
_ADDED: Mapping[int, Set[str]] = {
    2: {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"},
    3: {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"},
    4: {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
NUMBERS = tuple(_ADDED)
"""The levels that a kernel with `OpSpec.cpu_levels` is compiled for, the lowest first."""


def name(level: int) -> str:
    """Return ``x86-64-v3``, which compilers take as -march."""
    return f"x86-64-v{level}"


@cache
def of_processor() -> tuple[int, ...]:
    """Return the levels that this processor has; none where it is unknown."""
    try:
        found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return _of_flags({*found[1].split()} if found and os.uname().machine == "x86_64" else set())


def _of_flags(flags: Set[str]) -> tuple[int, ...]:
    missing = next((level for level in NUMBERS if not _ADDED[level] <= flags), NUMBERS[-1] + 1)
    return tuple(level for level in NUMBERS if level < missing)


class LibraryLevels:
    """The levels at which the kernels of a loaded library run; none where it has them for every x86-64 alone."""

    def __init__(self, library: Path | None) -> None:
        """Take the library that a process has loaded, or will load, from `library`."""
        self.names: tuple[str, ...] = ()
        if library:
            import ctypes  # which every doit command would pay for

            self._set = ctypes.CDLL(str(library)).opmatrix_cpu_level
            self.names = tuple(map(name, of_processor()))

    def each(self) -> Iterator[str]:
        """Yield the name of each level that this processor has, with the kernels at it; the highest comes last, and
        remains. Yield "" once where the library has no levels. Raises OpmatrixError for a level that the library
        does not take."""
        if not self.names:
            yield ""
        for level, shown in zip(of_processor(), self.names, strict=False):
            if self._set(level) != level:
                raise OpmatrixError(f"the library does not run at {shown}, which the processor has; compile it again")
            yield shown


NO_LEVELS = LibraryLevels(None)
