"""Commands of stages as a person can paste them: a checkout is entered by ./run, a project of one's own by its
environment."""

from __future__ import annotations

import re
from pathlib import Path

# gdb needs the environment's Python itself, which ./run puts on PATH.
_STAGE = re.compile(r"(?:\./run )?(gdb --args )?\bpython -m opmatrix\b")


def for_shell(text: str) -> str:
    """Return a text for a person who stands in the project's root.

    In files the commands stay ``python -m opmatrix``, as every environment has it.
    """
    return _STAGE.sub(r"./run \1python -m opmatrix", text) if Path("run").is_file() else text
