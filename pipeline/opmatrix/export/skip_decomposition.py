"""Skip torch's decomposition of a captured program in which nothing is to be decomposed.

`torch.onnx.export` takes every program apart into the ATen operators that it has translations for, and collects all of
torch's decompositions for that: nine tenths of the time of a small export (torch 2.13: 0.25 of 0.3 s). A program that
calls nothing but operators with a translation of their own comes out as it went in. A private name of torch is replaced
here; where it is gone, exports are slower and otherwise the same.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch.onnx._internal.exporter import _fx_passes

_DECOMPOSE = "decompose_with_registry"


@contextmanager
def skipped(program: torch.export.ExportedProgram, translated: Collection[object]) -> Iterator[bool]:
    """Skip it for as long as the block lasts, if `program` calls operators of `translated` alone; say whether."""
    called = {node.target for node in program.graph.nodes if node.op == "call_function"} - {operator.getitem}
    skip = called <= set(translated) and hasattr(_fx_passes, _DECOMPOSE)
    if skip:
        with mock.patch.object(_fx_passes, _DECOMPOSE, lambda program, registry: program):
            yield True
    else:
        yield False
