"""The peak memory of a call: how far it raises the peak of the resident set of its process."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_RESET = "5"  # resets the peak of the resident set, VmHWM: proc_pid_clear_refs(5)


def peak(call: Callable[[], Any]) -> int | None:
    """Return by how many bytes one call raises the peak, or None where the peak cannot be reset.

    Inputs are resident before. Free memory of earlier calls is returned to Linux first, so that outputs and temporary
    memory of the call count. A page is the smallest unit.
    """
    ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text(_RESET, encoding="utf-8")
        before = _status("VmRSS")
        result = call()
        after = _status("VmHWM")
    except OSError:
        return None
    del result
    return max(0, after - before)


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status has no {name}")
    return int(found[1]) * 1024
