"""Environments of the matrix in tox, named by opmatrix.project.tox_names.

tox reads a project's toxfile.py, in the folder of its tox.ini, which calls `cells_of`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tox.config.loader.memory import MemoryLoader
from tox.config.sets import ConfigSet
from tox.config.types import Command
from tox.plugin import impl
from tox.report import HandledError
from tox.session.state import State

from opmatrix.basics.errors import OpmatrixError
from opmatrix.basics.version import minor
from opmatrix.project.cells import Choice
from opmatrix.project.measured import use_rows
from opmatrix.project.paths import Paths
from opmatrix.project.settings import default_opsets, installed, with_environment
from opmatrix.project.tox_names import Factors, labels

# The tox environment of the installed torch and ONNX Runtime: a tox.ini with this name needs no version.
DEFAULT = "cells"


def cells_of(toxfile: str) -> tuple[Callable[[], Iterable[str]], Callable[[ConfigSet, State], None]]:
    """Return tox_extend_envs and tox_add_core_config for the project whose toxfile.py is `toxfile`."""
    paths = Paths(Path(toxfile).resolve().parent)

    @cache
    def factors() -> Factors:
        use_rows(paths, installed())
        torches, orts = with_environment(paths)
        return Factors.of(torches=[*torches], orts=[*orts], default=default_opsets(paths))

    @impl
    def tox_extend_envs() -> Iterable[str]:
        """Return the name of every legal environment."""
        with _as_tox_error():
            return (DEFAULT, *factors().names())

    @impl
    def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
        """Configure each environment. Raises HandledError for a requested name that is none."""
        with _as_tox_error():
            for name in state.conf.options.env if hasattr(state.conf.options, "env") else ():
                factors().choice(name)
            for name in tox_extend_envs():
                settings = _settings(name, factors().choice(name), state)
                state.conf.memory_seed_loaders[name].append(MemoryLoader(**settings))

    return tox_extend_envs, tox_add_core_config


@contextmanager
def _as_tox_error() -> Iterator[None]:
    """Make tox print errors as messages, without a traceback."""
    try:
        yield
    except OpmatrixError as error:
        raise HandledError(str(error)) from error


def _settings(name: str, choice: Choice | None, state: State) -> dict[str, object]:
    # doit runs in tox's own Python, where opmatrix is installed; the environments that tox makes stay empty.
    python, chosen = sys.executable, str(choice or "").split()
    command = [python, "-m", "doit", "-n", str(len(os.sched_getaffinity(0))), *chosen]
    return {
        "description": " ".join(["doit", *chosen]),
        "labels": list(labels(name, main=minor(installed().torch))) if choice else [],
        "skip_install": True,
        "pass_env": ["*"],
        "allowlist_externals": [python],
        "commands": [Command([*command, *(state.conf.pos_args(None) or ())])],
    }
