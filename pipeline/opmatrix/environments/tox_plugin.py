"""Environments of the matrix in tox, with their names and labels: ``torch2.9``, ``torch2.9-opset18``, ``ort1.18``.

tox reads a project's toxfile.py, in the folder of its tox.ini, which calls `cells_of`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tox.config.loader.memory import MemoryLoader
from tox.config.sets import ConfigSet
from tox.config.types import Command
from tox.plugin import impl
from tox.report import HandledError
from tox.session.state import State

from opmatrix.basics.errors import OpmatrixError, UsageError, did_you_mean
from opmatrix.basics.version import minor
from opmatrix.project.cells import MADE, TORCH_EXPORTERS, Choice, Exporter, why_no_exporter
from opmatrix.project.measured import use_rows
from opmatrix.project.paths import Paths
from opmatrix.project.settings import default_opsets, installed, with_environment

# The tox environment of the installed torch and ONNX Runtime: a tox.ini with this name needs no version.
DEFAULT = "cells"
_NAME = re.compile(r"torch(?P<torch>[^-]*)(-opset(?P<opset>[^-]*))?|ort(?P<ort>[^-]*)")


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The factors that tox names may have: versions with an environment, and the default opsets."""

    torches: Sequence[str]
    orts: Sequence[str]
    opsets: Sequence[int]

    @classmethod
    def of(cls, *, torches: Sequence[str], orts: Sequence[str], default: Mapping[Exporter, Iterable[int]]) -> Factors:
        opsets = {opset for exporter in TORCH_EXPORTERS for opset in default[exporter]}
        return cls(torches=torches, orts=orts, opsets=sorted(opsets))

    def names(self) -> Iterator[str]:
        """Yield the name of every legal environment: each torch with its opsets, then each ONNX Runtime."""
        for torch in self.torches:
            yield f"torch{torch}"
            yield from (f"torch{torch}-opset{o}" for o in self.opsets if not why_no_exporter(o, [torch]))
        yield from (f"ort{ort}" for ort in self.orts)

    def choice(self, name: str) -> Choice | None:
        """Return the cells, or None for a foreign name. Raises UsageError with why a version or opset is illegal."""
        if not (found := _NAME.fullmatch(name)):
            return None
        torch, opset, ort = found["torch"], found["opset"], found["ort"]
        if ort is not None:
            self._require_known(name, ort, self.orts, "ort")
            return Choice(torch=MADE, ort=ort)
        self._require_known(name, torch, self.torches, "torch")
        if opset is None:
            return Choice(torch=torch)
        if not opset.isdecimal():
            raise UsageError(f"{name}: found opset {opset!r}, allowed: a number")
        if reason := why_no_exporter(int(opset), [torch]):
            raise UsageError(f"{name}: {reason}")
        if int(opset) not in self.opsets:
            known = ", ".join(map(str, self.opsets))
            raise UsageError(f"{name}: opset {opset} is legal, and has no name in tox, which has {known} "
                             f"(pyproject.toml, [tool.opmatrix.opsets]); use doit torch={torch} "
                             f"opsets={opset}")  # fmt: skip
        return Choice(torch=torch, opsets=opset)

    def _require_known(self, name: str, version: str, legal: Sequence[str], factor: str) -> None:
        if version not in legal:
            allowed = ", ".join(f"{factor}{v}" for v in legal)
            raise UsageError(f"{name}: there is no {factor}{version}; allowed: {allowed}{did_you_mean(version, legal)}")


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


def labels(name: str, *, main: str) -> tuple[str, ...]:
    """Return an environment's tox labels, none with an opset: its torch covers it. `main` is the main torch."""
    if "-opset" in name:
        return ()
    kind = "torch" if name.startswith("torch") else "ort"
    return ("full", kind, "quick") if name == f"torch{main}" else ("full", kind)
