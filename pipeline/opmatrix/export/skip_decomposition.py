"""Skip torch's decomposition of a captured program that needs none.

`torch.onnx.export` decomposes each program into the ATen operators that it can translate, and collects all of torch's
decompositions for it: nine tenths of the time of a small export (torch 2.13: 0.25 of 0.3 s). It does not change a
program whose operators all have a custom translation. This module patches a private name of torch; without it exports
are slower and otherwise the same.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from contextlib import contextmanager, nullcontext
from unittest import mock

import torch
from torch.onnx._internal.exporter import _fx_passes

_DECOMPOSE = "decompose_with_registry"


@contextmanager
def skipped(program: torch.export.ExportedProgram, translated: Collection[object]) -> Iterator[bool]:
    """Skip it while the block runs, if `program` calls only operators of `translated`; yield whether it does."""
    called = {node.target for node in program.graph.nodes if node.op == "call_function"} - {operator.getitem}
    skip = called <= set(translated) and hasattr(_fx_passes, _DECOMPOSE)
    unchanged = mock.patch.object(_fx_passes, _DECOMPOSE, lambda program, registry: program)
    with unchanged if skip else nullcontext():
        yield skip
