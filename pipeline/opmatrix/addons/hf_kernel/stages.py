"""The stages of this feature, which `python -m opmatrix` runs: see `opmatrix.commands.stages`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from opmatrix.commands.stages import Stage, flag, wheel_stage

STAGES: Mapping[str, Stage] = {
    "hf-kernel": (
        "make a folder that Hugging Face's package kernels loads, from the wheel that dist has built",
        flag("--unverified", "from the wheel of dist --unverified"),
    ),
}
SPECIAL: Mapping[str, Callable[..., None]] = {"hf-kernel": partial(wheel_stage, "hf-kernel")}
ONLY_WRITE: tuple[str, ...] = ()
