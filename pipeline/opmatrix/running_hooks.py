"""Where code of a project could run while others judge: hooks of Python, signals and threads that its files leave."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator, Mapping

# What a file of a project changes, by the last word of which its line is found, and what the message says.
OTHER = "lets code run in the middle of other code"
MESSAGES = {
    "sys.settrace": "traces the functions of this process",
    "sys.setprofile": "traces the functions of this process",
    "sys.monitoring": "traces the functions of this process",
    "sys.meta_path": "changes how modules are found (sys.meta_path)",
    "gc.callbacks": f"{OTHER} (gc.callbacks)",
    "signal.signal": f"{OTHER} (signal.signal)",
    "threading.Thread": "leaves a thread that runs",
}
EVENTS = ("sys.addaudithook",)  # of audit hooks, which see what nothing lists
_getsignal = sys.modules["_signal"].getsignal  # that of `signal` makes an enum of each, which takes 10 times as long
_OF_FILES = ("gc.callbacks", "signal.signal", "threading.Thread")  # stages have their own later


def now() -> dict[str, tuple[object, ...]]:
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    return {
        "sys.settrace": (sys.gettrace(),),
        "sys.setprofile": (sys.getprofile(),),
        "sys.monitoring": tuple(map(monitoring.get_tool, range(6))) if monitoring else (),
        "sys.meta_path": tuple(sys.meta_path),
        "gc.callbacks": tuple(gc.callbacks),
        "signal.signal": tuple(map(_getsignal, range(1, signal.NSIG))),
        "threading.Thread": tuple(sys._current_frames()),
    }


def left(before: Mapping[str, tuple[object, ...]], *, declared: bool) -> Iterator[str]:
    """Yield what has changed since `before` by a file of a project. `declared`: only such files have run."""
    for name, there in now().items():
        if there != before[name] and (declared or name not in _OF_FILES):
            if name == "sys.meta_path" and all(map(_is_installed, set(there) ^ set(before[name]))):
                continue
            if name == "threading.Thread" and set(there) <= set(before[name]):  # one has ended
                continue
            yield name


def _is_installed(finder: object) -> bool:
    """Return whether a finder of modules is that of an installed package, such as of six."""
    module = sys.modules.get(getattr(finder, "__module__", None) or type(finder).__module__)
    return "-packages" in (getattr(module, "__file__", None) or "")
