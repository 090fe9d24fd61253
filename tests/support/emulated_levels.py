"""Run an operator's kernel at x86-64-v4 on an emulated processor: the objects of its libraries, with all cases and all
drawn inputs."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from opmatrix.codegen import bindings
from opmatrix.data.arrays import Array, numpy_dtype
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator, load_operator
from opmatrix.judge.rounding import difference
from opmatrix.ort_checks import races
from opmatrix.project.paths import Paths
from opmatrix.search import drawn as drawn_cases
from opmatrix.search.drawn import DrawnCase
from opmatrix.signature.signature import dtype_of
from opmatrix.sizes.variadic import with_outputs
from opmatrix.toolchain.find import find_toolchain
from tests.support import emulated_processor
from tests.support.projects import ROOT

_LEVELS = "cpu_levels=True"


def with_levels(project: Path) -> list[str]:
    """Return the operators of a project whose kernels are compiled for each level of x86-64."""
    found = [path.parent.name for path in sorted(project.glob("ops/*/spec.py")) if _LEVELS in path.read_text()]
    assert found
    return found


def differences(paths: Paths, folder: Path, name: str) -> list[str]:
    """Run a kernel of a project that is compiled and has drawn inputs; return how its outputs are wrong. `folder` gets
    the program."""
    operator = load_operator(paths, name)
    reference = Reference(paths, operator.spec)
    drawn = drawn_cases.read(paths.drawn_inputs(name), name)
    calls = sorted(races.stored_calls(operator, drawn, reference), key=races._bytes)
    assert not races.write_calls(folder / "calls", operator.spec, calls)
    assert len(calls) > len(drawn) / 2
    program = compiled(paths, folder, operator)
    done = subprocess.run(
        [*emulated_processor.COMMAND, program, folder / "calls", folder / "outputs"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "x86-64-v4\n")
    found = outputs(folder / "outputs", operator, calls)
    wrong = (
        f"{one.model.name}: {text}"
        for one, actual in zip(calls, found, strict=True)
        if (text := difference(operator.spec, one, actual, reference))
    )
    return [*wrong]


def compiled(paths: Paths, folder: Path, operator: Operator) -> Path:
    """Link the objects of the libraries into a static program, and return it."""
    source, program = folder / "program.cc", folder / "program"
    text = bindings.races(operator.spec)
    assert text.count("race_driver::main(") == 1
    header = ROOT / "tests/native/write_outputs.h"
    source.write_text(f'#include "{header}"\n' + text.replace("race_driver::main(", "write_outputs("))
    folders = (paths.generated(operator.name), paths.binding, paths.include, paths.native)
    objects = paths.objects(operator.name, "kernel", "runtime")
    command = [*find_toolchain(os.environ).compiler, "-std=c++20", "-w", "-static", *(f"-I{one}" for one in folders)]
    done = subprocess.run([*command, source, *objects, "-o", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


def outputs(path: Path, operator: Operator, calls: list[DrawnCase]) -> Iterator[list[Array]]:
    """Read the outputs of each call."""
    content, at = path.read_bytes(), 0
    for one in calls:
        found = []
        for declared in with_outputs(operator.spec, len(one.expected or ())).outputs:
            dtype = numpy_dtype(dtype_of(declared.type, one.model.types))
            (rank,) = struct.unpack_from("=q", content, at)
            shape = struct.unpack_from(f"={rank}q", content, at + 8)
            at += 8 + 8 * rank
            array = np.frombuffer(content, dtype, int(np.prod(shape)), at).reshape(shape)
            at += array.nbytes
            found.append(array)
        yield found
    assert at == len(content)
