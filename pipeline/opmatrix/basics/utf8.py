"""Start a program again in Python's UTF-8 mode where the locale has another encoding.

Without it, as with LC_ALL=C and PYTHONUTF8=0, Python reads files of a project, prints, and passes paths in that
encoding, also in torch and in code of the project. Called by the programs of this package before they read a file.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "PYTHONUTF8"  # steps and tools inherit it


def use_utf8() -> None:
    """Replace this process by one in UTF-8 mode, unless its encoding is UTF-8 already."""
    if sys.getfilesystemencoding() != "utf-8" and os.environ.get(_VARIABLE) != "1":
        os.environ[_VARIABLE] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
