"""Call a reference.py that is written in torch: in a process of its own, because this one may not import torch.

`opmatrix.torch_ops.reference_process` is that process. It starts at the first call, in the main environment, and
serves this process until it ends. The stage `data` stores what it computed, so that `verify` reads the outputs of its
cases instead of starting the process again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import pickle
import resource
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from opmatrix.basics import interrupts
from opmatrix.basics.errors import DataError
from opmatrix.basics.files import sha256, write_parts
from opmatrix.basics.processes import signal_name
from opmatrix.data.arrays import Array, dtype_name, raw_bytes
from opmatrix.project.paths import MAIN_PYTHON, Paths
from opmatrix.spec import AttributeValue, OpSpec

MODULE = "opmatrix.torch_ops.reference_process"
PROTOCOL = 5  # of pickle: the first that writes and reads arrays in place, Python's default is 4 until 3.14

Outputs = tuple[Array | None, ...]
_Described = tuple[str, tuple[int, ...]] | None  # of an array in the file, its dtype and sizes


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a function of reference.py, or, without a name, the question what it left in its process. `optional`:
    the function may be missing."""

    function: str
    inputs: Sequence[Any]
    attributes: Mapping[str, Any]
    optional: bool = False
    seconds: float | None = None
    megabytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The outputs, or why there are none. `kind` is "slow" or "memory" where a limit stopped it. `problems`: what it
    did although it must not, also where its code caught the exception."""

    outputs: Outputs | None = None
    error: str = ""
    kind: str = ""
    cpu: float = 0.0
    problems: tuple[str, ...] = ()


def function(paths: Paths, spec: OpSpec, problems: list[str]) -> Callable[..., Outputs]:
    """Return the function of a reference.py. Calls of it add to `problems` what it did although it must not."""

    def call(*inputs: Any, **attributes: AttributeValue) -> Outputs:
        # onnx.reference gives floats of NumPy.
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in attributes.items()}
        outputs = of(paths, spec).outputs(Call(function=spec.name, inputs=inputs, attributes=plain), problems)
        assert outputs is not None  # the function is not optional
        return tuple(np.empty(0) if output is None else output for output in outputs)  # one that is turned off

    return call


def gradient(paths: Paths, spec: OpSpec) -> Callable[..., Outputs] | None:
    """Return the function ``<name>_gradient`` of a reference.py, or None where it has none."""
    name = f"{spec.name}_gradient"

    def call(*inputs: Any, **attributes: AttributeValue) -> Outputs | None:
        made = Call(function=name, inputs=inputs, attributes=attributes, optional=True)
        return of(paths, spec).outputs(made, [])

    source = paths.reference(spec.name)
    defined = source.is_file() and f"def {name}(" in source.read_text(encoding="utf-8")
    return call if defined else None  # type: ignore[return-value]  # not None where it exists


def of(paths: Paths, spec: OpSpec) -> _Reference:
    """Return the reference of an operator; one process serves all users within this one."""
    refused = [override.name for override in spec.torch.overrides] if spec.torch else []
    own = [spec.torch.name] if spec.torch else []
    arguments = ("dependent" if spec.dependent_reference else "independent", *dict.fromkeys([*own, *refused]))
    return _reference(paths, spec.name, arguments, os.getpid())


@functools.cache
def _reference(paths: Paths, operator: str, arguments: tuple[str, ...], process: int) -> _Reference:
    return _Reference(paths, operator, arguments)


class _Reference:
    def __init__(self, paths: Paths, operator: str, arguments: tuple[str, ...]) -> None:
        self._paths, self._operator, self._arguments = paths, operator, arguments
        self._shown = str(paths.reference(operator).relative_to(paths.root))
        self._process: subprocess.Popen[bytes] | None = None
        self._version = ""
        self._computed: dict[str, Outputs] | None = None  # since `record`
        self._stored: frozenset[str] | None = None

    @property
    def version(self) -> str:
        """The version of torch that evaluates it."""
        if not self._version:
            self._start()
        return self._version

    def outputs(self, call: Call, problems: list[str]) -> Outputs | None:
        """Return the outputs of a call. Raises DataError where the reference raises, TooSlow where it is too slow."""
        key = _key(call)
        if outputs := self._read_stored(key) or (self._computed or {}).get(key):
            return outputs
        answer = self._ask(call)
        interrupts.spend(answer.cpu)
        problems += answer.problems
        if answer.kind == "slow":
            raise interrupts.TooSlow
        if answer.error:
            raise DataError(answer.error) from (MemoryError() if answer.kind == "memory" else None)
        if self._computed is not None and answer.outputs is not None:
            self._computed[key] = answer.outputs
        return answer.outputs

    def traces(self) -> tuple[str, ...]:
        """Return what it left in its process although it must not, if that was started."""
        return self._ask(Call(function="", inputs=(), attributes={}, optional=True)).problems if self._process else ()

    def record(self) -> None:
        """Keep from now on what is computed, for `write`, and compute all anew."""
        self._computed, self._stored = {}, frozenset()

    def write(self, path: Path) -> None:
        """Write what was computed since `record`: a line of JSON, and after it the bytes of all arrays."""
        head, parts = dict[str, list[_Described]](), list[memoryview]()
        for key, outputs in sorted((self._computed or {}).items()):
            head[key] = [None if array is None else (dtype_name(array), array.shape) for array in outputs]
            parts += [raw_bytes(array) for array in outputs if array is not None]
        first = json.dumps({"reference": sha256(self._paths.reference(self._operator)), "calls": head})
        write_parts(path, [first.encode() + b"\n", *parts])

    def _read_stored(self, key: str) -> Outputs | None:
        """Return the outputs of a call that `data` stored. They are read each time, so that they take memory only
        where they are used."""
        path, reference = self._paths.reference_calls(self._operator), self._paths.reference(self._operator)
        if self._stored is None:
            self._stored = frozenset()  # where the file is missing, or of another reference.py
            with suppress(FileNotFoundError), path.open("rb") as file:
                self._stored = frozenset(_calls(file, reference))
        return _read(path, reference, key) if key in self._stored else None

    def _ask(self, call: Call) -> Answer:
        process = self._process or self._start()
        assert process.stdin and process.stdout
        seconds, megabytes = interrupts.in_force()
        try:
            pickle.dump(replace(call, seconds=seconds, megabytes=megabytes), process.stdin, PROTOCOL)
            process.stdin.flush()
            answer = pickle.load(process.stdout)
        except (EOFError, BrokenPipeError, pickle.UnpicklingError) as error:
            raise DataError(self._ended(process)) from error
        except BaseException:  # such as TooSlow: the rest of the answer would be taken for the next one
            self._stop()
            raise
        assert isinstance(answer, Answer)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        python = os.environ.get(MAIN_PYTHON, sys.executable)
        command = [python, "-m", MODULE, str(self._paths.root), self._operator, *self._arguments]
        limit = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (limit[1], limit[1]))  # a limit of this process is not that of torch
        try:
            started = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, limit)
        self._process = started
        self._end = weakref.finalize(self, _end, started)
        assert started.stdout
        try:
            self._version = pickle.load(started.stdout)
        except (EOFError, pickle.UnpicklingError) as error:
            raise DataError(self._ended(started)) from error
        return started

    def _stop(self) -> None:
        self._process = None
        self._end()

    def _ended(self, process: subprocess.Popen[bytes]) -> str:
        self._stop()
        status = process.returncode
        how = f"died of {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
        return f"{self._shown}: the process that evaluates it in torch {how}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that waits for a call; one that has ended already keeps its exit code."""
    assert process.stdin and process.stdout
    process.stdout.close()
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(timeout=0.5)
    except subprocess.TimeoutExpired:  # it computes
        process.kill()
        process.wait()


def _key(call: Call) -> str:
    attributes = sorted(
        (name, (dtype_name(value), value.shape, value.tobytes()) if isinstance(value, np.ndarray) else value)
        for name, value in call.attributes.items()
    )
    digest = hashlib.sha256(repr((call.function, attributes)).encode())
    for argument in call.inputs:
        parts = argument if isinstance(argument, tuple) else (argument,)
        digest.update(f"{len(parts) if isinstance(argument, tuple) else 'one'};".encode())
        for array in parts:
            digest.update(b"None;" if array is None else f"{dtype_name(array)} {array.shape};".encode())
            digest.update(b"" if array is None else raw_bytes(array))
    return digest.hexdigest()


def _read(path: Path, reference: Path, key: str) -> Outputs | None:
    with path.open("rb") as file:
        calls = _calls(file, reference)
        at = file.tell()
        for other, described in calls.items():
            if other == key:
                file.seek(at)
                return tuple(
                    None if one is None else np.fromfile(file, np.uint8, _size(one)).view(one[0]).reshape(one[1])
                    for one in described
                )
            at += sum(map(_size, described))
    return None  # `data` has written another file since


def _calls(file: BinaryIO, reference: Path) -> dict[str, list[_Described]]:
    head = json.loads(file.readline())
    return dict(head["calls"]) if head["reference"] == sha256(reference) else {}


def _size(described: _Described) -> int:
    return math.prod(described[1]) * np.dtype(described[0]).itemsize if described else 0
