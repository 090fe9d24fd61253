"""Make wrong calls in one child process, which must still compute at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

CALL_ALL = """
said = {}
for call in calls:
    try:
        eval(call)
    except Exception as error:
        said[call] = str(error)
"""
"""A part of such a program: evaluates `calls`, and keeps the message of each that raises in `said`."""


def messages(program: str, *arguments: str | Path) -> dict[str, str]:
    """Return the messages by call, which a Python program prints last, as JSON."""
    done = subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found
