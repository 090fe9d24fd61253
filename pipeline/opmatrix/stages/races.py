"""Call an operator's kernel from several threads at once in a program with ThreadSanitizer.

The program is compiled from the kernel, native/binding/runtime.cc and a generated main function. It contains no Python,
no framework and no OpenMP, of whose threads ThreadSanitizer knows too little: it reports races there, or dies. So it
covers the kernel, and no binding.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from opmatrix.codegen import cpp_bindings
from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import has_kernel_object
from opmatrix.errors import SanitizeError
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.testdata import drawn_cases, race_file
from opmatrix.testdata.numpy_reference import Reference
from opmatrix.toolchain import third_party_headers
from opmatrix.toolchain.find_tools import find_toolchain
from opmatrix.toolchain.ninja_file import race_flags
from opmatrix.toolchain.thread_sanitizer import UnsupportedError, probe, run_program


def run(layout: Paths, operator: Operator) -> None:
    """Build the program, run it on all cases and drawn inputs, and write the record. Raises SanitizeError for a race,
    and for a result that depends on other threads; a compiler or a kernel without it is recorded as unsupported."""
    folder, record = layout.races(operator.name), layout.races_record(operator.name)
    folder.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    try:
        outcome, detail = "verified", _run(layout, operator, folder)
    except UnsupportedError as error:
        outcome, detail = "unsupported", str(error)
    print(f"ThreadSanitizer: {outcome}: {detail}", flush=True)
    write_text(record, json.dumps({"outcome": outcome, "detail": detail}) + "\n")


def _run(layout: Paths, operator: Operator, folder: Path) -> str:
    name, spec = operator.name, operator.spec
    if not has_kernel_object(spec, operator.handwritten_files):
        raise UnsupportedError(f"{name} has no kernel.h: its bindings are written by hand, and are not covered")
    toolchain = find_toolchain(os.environ)
    prefix = probe(toolchain.compiler, folder)
    drawn = drawn_cases.read(layout.drawn_inputs(name), name)
    reference = Reference(layout, spec)
    calls = folder / "calls"
    written = race_file.write(calls, spec, race_file.stored_calls(operator, drawn, reference))
    program, source = folder / "races", folder / "races.cc"
    write_text(source, cpp_bindings.races(spec))
    headers = third_party_headers.find(spec, layout.root)
    sources = [layout.generated(name) / "kernel.cc", layout.binding / "runtime.cc", source]
    flags = race_flags(layout, spec, headers)
    _compile([*toolchain.compiler, *flags, *map(str, sources), "-o", str(program)])
    detail = run_program([*prefix, str(program), str(calls)], cwd=layout.root)
    if written.left_out:
        detail += f"; too large for it: {', '.join(written.left_out)}"
    calls.unlink()
    return detail


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise SanitizeError(f"the program for ThreadSanitizer does not compile:\n{done.stdout}")
