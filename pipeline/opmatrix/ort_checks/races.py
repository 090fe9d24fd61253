"""Call an operator's kernel from several threads at once in a program with ThreadSanitizer.

The program is compiled from the kernel, native/binding/runtime.cc and a generated main function. It contains no Python,
no framework and no OpenMP, of whose threads ThreadSanitizer knows too little: it reports races there, or dies. So it
covers the kernel, and no binding. It reads a file of calls (native/binding/race_driver.h), in which numbers have 8
bytes, in the machine's order; the length of what has several comes before it.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from opmatrix.basics.errors import SanitizeError
from opmatrix.basics.files import write_bytes, write_text
from opmatrix.codegen import bindings
from opmatrix.data.arrays import Array, dtype_name
from opmatrix.data.case_arrays import case_arrays, described, elements, reference_attributes
from opmatrix.data.reference import Argument, Reference, tensor_array, tensors
from opmatrix.declaration.load import Operator
from opmatrix.declaration.models import case_arguments
from opmatrix.ort_checks.thread_sanitizer import UnsupportedError, probe, run_program
from opmatrix.project.paths import Paths
from opmatrix.search import drawn as drawn_cases
from opmatrix.search.drawn import DrawnCase, evaluate, reference_outputs
from opmatrix.search.larger_inputs import enlarge
from opmatrix.signature.signature import dtype_of, dtype_tuples, has_kernel_object
from opmatrix.sizes.variadic import with_outputs
from opmatrix.spec import Attribute, AttributeValue, Model, OpSpec
from opmatrix.toolchain import headers
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.ninja_file import race_flags

END = 0x6F706D61
MOST_BYTES = 1 << 27  # of all calls: ThreadSanitizer takes several times as much, and each thread has outputs


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
    compiler = find_toolchain(os.environ).compiler
    calls, program, source, stamped = (folder / file for file in ("calls", "races", "races.cc", "stamp"))
    command = [*compiler, *race_flags(paths, spec, headers.find(spec, paths.root))]
    left_out: Sequence[str] = ()
    known = stamped.read_text(encoding="utf-8").splitlines() if stamp and stamped.is_file() else []
    others = {folder / "runtime.o": paths.binding / "runtime.cc", folder / "races.o": source}
    if known[:1] == [stamp]:
        prefix = known[1:]
    else:
        prefix = probe(compiler, folder)
        drawn, reference = drawn_cases.read(paths.drawn_inputs(name), name), Reference(paths, spec)
        left_out = write_calls(calls, spec, stored_calls(operator, drawn, reference))
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


# The file of calls.


def stored_calls(operator: Operator, drawn: Sequence[DrawnCase], reference: Reference) -> Iterator[DrawnCase]:
    """Return each case, named as the case, the largest of each model also made larger, and each drawn input; without
    those that the reference rejects."""
    spec = operator.spec
    found = [*drawn]
    for model in operator.models:
        if model.unsupported:
            continue
        cases = [*filter(described, model.cases)]
        if not cases:
            continue
        found += [evaluate(spec, replace(model, name=case.name, cases=(case,)), reference) for case in cases]
        largest = max(cases, key=lambda case: sum(elements(case)))
        of = replace(model, name=f"{largest.name} (repeated)", cases=(largest,))

        def compute(arrays: Sequence[Array], of: Model = of) -> Sequence[Array] | None:
            return reference_outputs(spec, of, reference, arrays)[0]

        for arrays in [*enlarge(spec, of, largest, case_arrays(spec, of, largest), compute)][-1:]:
            expected, refusal = reference_outputs(spec, of, reference, arrays)
            found.append(DrawnCase(model=of, arrays=arrays, expected=expected, refusal=refusal))
    return (one for one in found if one.expected is not None)


def write_calls(path: Path, spec: OpSpec, calls: Iterable[DrawnCase]) -> list[str]:
    """Write the calls, the smallest first, up to `MOST_BYTES`; return the names of those that are too large."""
    room, written, left_out = MOST_BYTES, list[bytes](), list[str]()
    for call in sorted(calls, key=_bytes):
        room -= _bytes(call)
        if room < 0:
            left_out.append(call.model.name)
        else:
            written.append(b"".join(_call(spec, call)))
    write_bytes(path, b"".join([_number(len(written)), *written, _number(END)]))
    return left_out


def _bytes(call: DrawnCase) -> int:
    return sum(array.nbytes for array in (*call.arrays, *(call.expected or ())))


def _call(spec: OpSpec, call: DrawnCase) -> Iterator[bytes]:
    outputs, inputs = call.expected or (), tuple(case_arguments(spec, call.model.cases[0], call.arrays))
    yield _text(call.model.name)
    yield _number(_choice(spec, inputs, outputs))
    yield _number(len(spec.inputs))
    for arrays in map(tensors, inputs):
        yield _number(len(arrays))
        for array in arrays:
            strings = array.ravel().tolist() if array.dtype == np.object_ else []
            yield _shape(array) + _sized(b"" if strings else array.tobytes())
            yield _number(len(strings)) + b"".join(map(_text, strings))
    values = reference_attributes(spec, call.model)
    yield _number(len(spec.attributes))
    for attribute in spec.attributes:
        value = values[attribute.name]
        if attribute.kind == "tensor":
            array = tensor_array(attribute, value)
            yield _shape(array) + _sized(array.tobytes())
            continue
        content = b"" if value is None else _attribute(attribute, value)
        yield _number(0) + _sized(b"\1" * (attribute.optional and value is not None) + content)
    yield _number(len(outputs))
    yield from map(_shape, outputs)


def _choice(spec: OpSpec, inputs: Sequence[Argument], outputs: Sequence[Array]) -> int:
    """Return the index of the kernel's dtypes: the first that fits all tensors."""
    declared = [*(i.type for i in spec.inputs), *(o.type for o in with_outputs(spec, len(outputs)).outputs)]
    given = {
        (name, dtype_name(array))
        for name, argument in zip(declared, (*inputs, *outputs), strict=True)
        for array in tensors(argument)
    }
    every = enumerate(dtype_tuples(spec))
    return next(n for n, types in every if all(dtype_of(name, types) == dtype for name, dtype in given))


_ITEMS: Mapping[str, type[np.generic]] = {"float": np.float32, "int": np.int64, "bool": np.bool_}


def _attribute(attribute: Attribute, value: AttributeValue) -> bytes:
    if isinstance(value, str):
        return value.encode() + b"\0"
    if attribute.kind == "strings" and isinstance(value, tuple):
        return b"".join(_text(str(text)) for text in value)
    return np.asarray(value, _ITEMS[attribute.kind.removesuffix("s")]).tobytes()


def _number(value: int) -> bytes:
    return struct.pack("=q", value)


def _sized(content: bytes) -> bytes:
    return _number(len(content)) + content


def _text(text: str) -> bytes:
    return _sized(text.encode())


def _shape(array: Array) -> bytes:
    return struct.pack(f"={array.ndim + 1}q", array.ndim, *array.shape)
