"""The version of a dictionary, which CPython 3.11 to 3.13 count (PEP 509): it differs after each change."""

from __future__ import annotations

import ctypes
import functools
import sys

TAG = 3 * ctypes.sizeof(ctypes.c_void_p)  # where a dictionary has it


@functools.cache
def has_tags() -> bool:
    """Return whether this Python counts the changes of a dictionary where `TAG` says."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 14):
        return False
    tried: dict[str, int] = {"a": 1}
    tag = ctypes.c_uint64.from_address(id(tried) + TAG)
    first = tag.value
    again, tried["a"] = tag.value, 2
    return first == again != tag.value
