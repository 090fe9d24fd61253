"""The edit loop in CPU seconds of all processes, beside the seed's way of building the same operator.

    ./run python benchmarks/loop.py [--rounds 5]

Each row is measured in the same run, in a copy of the project under a temporary folder. CPU seconds are user plus
system time of every process that the command started and waited for, as the kernel accounts them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from measuring import Measured, measure, nothing

ROOT = Path(__file__).resolve().parent.parent
PEER = Path(__file__).resolve().parent / "peer"
OP = "group_norm"


def copy_project(folder: Path) -> Path:
    """Copy what a project of this one operator holds."""
    project = folder / "project"
    for name in (f"ops/{OP}", f"native/{OP}", "native/include", "native/binding"):
        shutil.copytree(ROOT / name, project / name)
    for name in ("dodo.py", "pyproject.toml"):
        shutil.copy(ROOT / name, project / name)
    return project


def edit_kernel(project: Path) -> Callable[[int], None]:
    """Return an edit that changes the kernel's code, not only its text."""
    path = project / "native" / OP / "kernel.h"
    original = path.read_text()

    def edit(number: int) -> None:
        addition = (
            f"\nnamespace opmatrix {{ inline const volatile int benchmark_edit = {os.getpid() * 1000 + number}; }}\n"
        )
        path.write_text(original.replace("#pragma once\n", "#pragma once\n" + addition, 1))

    return edit


def peer_build(folder: Path, headers: Path) -> list[str]:
    """Return a command that builds the operator as the seed does: cpp_extension, and one g++ for ONNX Runtime."""
    script = (
        "import subprocess, sys, torch.utils.cpp_extension as c;"
        f"c.load('peer', [{str(PEER / 'group_norm_torch.cpp')!r}], build_directory={str(folder)!r},"
        " is_python_module=False, extra_cflags=['-O2']);"
        f"subprocess.run(['g++', '-std=c++17', '-O2', '-fPIC', '-shared', '-I', {str(headers)!r},"
        f" {str(PEER / 'group_norm_ort.cc')!r}, '-o', {str(folder / 'ort.so')!r}], check=True)"
    )
    return [sys.executable, "-c", script]


def rows(rounds: int, folder: Path) -> dict[str, Measured]:
    project, peer = copy_project(folder), folder / "peer"
    doit = [sys.executable, "-m", "doit"]
    edit = edit_kernel(project)

    def fresh_build(number: int) -> None:
        shutil.rmtree(project / "build" / "compile", ignore_errors=True)

    def fresh_peer(number: int) -> None:
        shutil.rmtree(peer, ignore_errors=True)
        peer.mkdir()

    print("making the project once ...", flush=True)
    measure(1, nothing, *doit, cwd=project)
    headers = Path(json.loads((project / "build" / "sdk.json").read_text())["path"])
    by_hand = [sys.executable, "-m", "pipeline", "compile", OP]
    found = {}
    for name, prepare, command in (
        ("cold build, both libraries", fresh_build, by_hand),
        ("  the seed's way", fresh_peer, peer_build(peer, headers)),
        ("kernel edit to both libraries, doit included", edit, [*doit, "compile"]),
        ("kernel edit to verified in all default cells", edit, doit),
        ("nothing to do", nothing, doit),
    ):
        print(f"measuring: {name.strip()} ...", flush=True)
        count = min(rounds, 3) if "seed" in name else rounds
        found[name] = measure(count, prepare, *command, cwd=project)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="opmatrix-benchmark-") as folder:
        found = rows(options.rounds, Path(folder))
    print(f"\n{'':46} CPU s (range)                wall s")
    for name, measured in found.items():
        print(f"{name:46} {measured}")
    cold, peer = (statistics.median(found[n].cpu) for n in ("cold build, both libraries", "  the seed's way"))
    print(f"\nthe seed's way / cold build: {peer / cold:.1f} times the CPU seconds")


if __name__ == "__main__":
    main()
