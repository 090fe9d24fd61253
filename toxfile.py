"""What tox knows of the matrix: its environments, named by pipeline.factors. tox reads this file by itself."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tox.config.loader.memory import MemoryLoader
from tox.config.sets import ConfigSet
from tox.config.types import Command
from tox.plugin import impl
from tox.report import HandledError
from tox.session.state import State

from pipeline.errors import OpmatrixError
from pipeline.factors import Factors, labels
from pipeline.layout import Layout
from pipeline.project import default_opsets, installed, minor, with_environment

LAYOUT = Layout(Path(__file__).resolve().parent)


@cache
def _factors() -> Factors:
    torches, orts = with_environment(LAYOUT)
    return Factors.of(torches=[*torches], orts=[*orts], default=default_opsets(LAYOUT))


@impl
def tox_extend_envs() -> Iterable[str]:
    """Name every legal environment."""
    return tuple(_factors().names())


@impl
def tox_add_core_config(core_conf: ConfigSet, state: State) -> None:
    """Say what each of them runs, and why a name that was asked for is none."""
    try:
        for name in state.conf.options.env if hasattr(state.conf.options, "env") else ():
            _factors().choice(name)
        for name in _factors().names():
            state.conf.memory_seed_loaders[name].append(MemoryLoader(**_settings(name, state)))
    except OpmatrixError as error:
        raise HandledError(str(error)) from error


def _settings(name: str, state: State) -> dict[str, object]:
    choice = _factors().choice(name)
    cores = str(len(os.sched_getaffinity(0)))
    command = [str(LAYOUT.root / "run"), "doit", "-n", cores, *str(choice).split(), *(state.conf.pos_args(None) or ())]
    return {
        "description": f"./run doit {choice}",
        "labels": list(labels(name, main=minor(installed().torch))),
        "commands": [Command(command)],
    }
