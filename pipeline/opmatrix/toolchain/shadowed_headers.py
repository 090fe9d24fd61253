"""Which names the folders of the compiler's search path lack: one of them would come before a header that was read."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from opmatrix.files import lacking

_SKIPPED = re.compile(r'^ignoring nonexistent directory "(?P<folder>.*)"$', re.MULTILINE)
_LIST = re.compile(r"^#include <\.\.\.> search starts here:\n(?P<folders>(?: .*\n)*)", re.MULTILINE)


def of_compiler(compiler: Sequence[str]) -> list[str]:
    """Return the folders that a compiler searches without options, in their order. Those that do not exist come first:
    the compiler does not print where they belong."""
    done = subprocess.run(
        [*compiler, "-E", "-v", "-x", "c++", os.devnull],
        capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    found = _LIST.search(done.stderr)
    folders = [*_SKIPPED.findall(done.stderr), *(found["folders"].splitlines() if found else [])]
    return list(dict.fromkeys(os.path.normpath(folder.strip()) for folder in folders))


def lacked(read: Iterable[str], search: Sequence[str], *, known: Iterable[str]) -> Iterator[str]:
    """Yield `lacking` for each folder of which a header with one of these names would come before what was read.

    `search`: folders in their order. `known`: those of which a new file is an input of the step already.
    """
    names: dict[str, set[str]] = {}
    exists = cache(os.path.lexists)
    order = {folder: number for number, folder in enumerate(search)}
    unknown = [folder for folder in search if folder not in {*known}]
    for path in read:
        own = max((folder for folder in search if path.startswith(f"{folder}/")), key=len, default="")
        for folder in unknown:
            if own and order[folder] < order[own]:
                within = folder
                for part in path[len(own) + 1 :].split("/"):
                    if not exists(f"{within}/{part}"):
                        names.setdefault(within, set()).add(part)
                        break
                    within = f"{within}/{part}"
    return (lacking(folder, names[folder]) for folder in sorted(names))
