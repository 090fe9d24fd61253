"""Commands in messages, in the form to paste into a shell: with ./run in a checkout of opmatrix."""

from __future__ import annotations

import re
from pathlib import Path

# gdb gets the environment's Python, which ./run puts on PATH.
_STAGE = re.compile(r"(?:\./run )?(gdb --args )?\bpython -m opmatrix\b")


def for_shell(text: str) -> str:
    """Return `text` with its commands as they run in the current folder, the project's root.

    In files the commands stay ``python -m opmatrix``, which works in every environment.
    """
    return _STAGE.sub(r"./run \1python -m opmatrix", text) if Path("run").is_file() else text
