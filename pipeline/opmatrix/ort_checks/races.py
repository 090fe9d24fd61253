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

from opmatrix.basics.errors import SanitizeError
from opmatrix.basics.files import write_text
from opmatrix.codegen import bindings
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.ort_checks import race_file
from opmatrix.ort_checks.thread_sanitizer import UnsupportedError, probe, run_program
from opmatrix.project.paths import Paths
from opmatrix.search import drawn as drawn_cases
from opmatrix.signature.signature import has_kernel_object
from opmatrix.toolchain import headers as third_party_headers
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ninja_file import race_flags


def run(paths: Paths, operator: Operator, *, stamp: str = "") -> None:
    """Build the program, run it on all cases and drawn inputs, and write the record. Raises SanitizeError for a race,
    and for a result that depends on other threads; a compiler or a kernel without it is recorded as unsupported.

    `stamp`: what all but the kernel depends on, for a program of another kernel, such as a mutant.
    """
    folder, record = paths.races(operator.name), paths.races_record(operator.name)
    folder.mkdir(parents=True, exist_ok=True)
    record.unlink(missing_ok=True)
    try:
        outcome, detail = "verified", _run(paths, operator, folder, stamp)
    except UnsupportedError as error:
        outcome, detail = "unsupported", str(error)
    print(f"ThreadSanitizer: {outcome}: {detail}", flush=True)
    write_text(record, json.dumps({"outcome": outcome, "detail": detail}) + "\n")


def _run(paths: Paths, operator: Operator, folder: Path, stamp: str = "") -> str:
    """Return what ran. With a `stamp`, the calls and the objects that do not read the kernel remain in the folder, and
    are used again where the stamp is equal."""
    name, spec = operator.name, operator.spec
    if not has_kernel_object(spec, operator.handwritten_files):
        raise UnsupportedError(f"{name} has no kernel.h: its bindings are written by hand, and are not covered")
    toolchain = find_toolchain(os.environ)
    calls, program, source, stamped = (folder / file for file in ("calls", "races", "races.cc", "stamp"))
    headers = third_party_headers.find(spec, paths.root)
    command = [*toolchain.compiler, *race_flags(paths, spec, headers)]
    left_out: Sequence[str] = ()
    known = stamped.read_text(encoding="utf-8").splitlines() if stamp and stamped.is_file() else []
    prefix = known[1:] if known[:1] == [stamp] else probe(toolchain.compiler, folder)
    others = {folder / "runtime.o": paths.binding / "runtime.cc", folder / "races.o": source}
    if known[:1] != [stamp]:
        drawn = drawn_cases.read(paths.drawn_inputs(name), name)
        reference = Reference(paths, spec)
        left_out = race_file.write(calls, spec, race_file.stored_calls(operator, drawn, reference)).left_out
        write_text(source, bindings.races(spec))
        for compiled, of in others.items():
            _compile([*command, "-c", str(of), "-o", str(compiled)])
        if stamp:
            write_text(stamped, "\n".join([stamp, *prefix]))
    kernel = paths.generated(name) / "kernel.cc"
    _compile([*command, str(kernel), *map(str, others), "-o", str(program)])
    detail = run_program([*prefix, str(program), str(calls)])
    if left_out:
        detail += f"; too large for it: {', '.join(left_out)}"
    if not stamp:
        calls.unlink()
    return detail


def _compile(command: Sequence[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise SanitizeError(f"the program for ThreadSanitizer does not compile:\n{done.stdout}")
