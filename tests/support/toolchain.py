"""A compiler, a linker and a torch with paths that exist on no machine, for results that depend on the paths."""

from __future__ import annotations

from pathlib import Path

from opmatrix.toolchain.find import Toolchain

TOOLCHAIN = Toolchain(
    compiler=("/usr/bin/g++",),
    compiler_identity="0123",
    linker="gold",
    ninja="/usr/bin/ninja",
    torch_include=Path("/env/torch/include"),
    torch_version="2.13.0",
)
