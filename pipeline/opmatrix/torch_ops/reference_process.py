"""``python -m opmatrix.torch_ops.reference_process ROOT OPERATOR``: evaluate a reference.py written in torch.

It runs in a process of its own, which loads neither the operator's library nor its Python definition, so that the
process that judges needs no torch (`opmatrix.data.torch_reference` starts it and calls it). It reads a pickled
`Call` after the other from standard input and writes an `Answer` for each; before the first, the version of torch.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._ops import _OpNamespace
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from opmatrix.basics.errors import DataError
from opmatrix.basics.files import line_in, load_module
from opmatrix.basics.interrupts import TooSlow, cpu_limit, memory_limit
from opmatrix.data import reference_audit
from opmatrix.data.arrays import Array
from opmatrix.data.reference_audit import Audit
from opmatrix.data.torch_reference import PROTOCOL, Answer, Call
from opmatrix.project.paths import Paths
from opmatrix.sizes.variadic import flat
from opmatrix.torch_ops.case_tensors import as_array, as_tensor


class Evaluator:
    """The functions of one reference.py, on tensors."""

    def __init__(self, paths: Paths, operator: str, refused: frozenset[str], *, declared: bool) -> None:
        """Load it; `refused` are the torch operators that it must not call, such as ``my_ops::group_norm``.
        `declared`: that it is not independent."""
        self._path = paths.reference(operator)
        self._audit = reference_audit.watch(paths, operator, torch=True, declared=declared)
        self._refused = refused
        self._called = False
        _refuse_unloaded(refused, self._audit)
        with self._watched():
            self._module = load_module(self._path, "reference")

    def answer(self, call: Call) -> Answer:
        """Call a function. Whatever it raises is in the answer, except what ends the process."""
        began, known = time.process_time(), len(self._audit.problems)
        outputs, error, kind = None, "", ""
        if not call.function:
            self._audit.finish()
        try:
            outputs = self._outputs(call)
        except TooSlow:
            kind = "slow"
        except DataError as raised:
            error = str(raised)
        except Exception as raised:  # a user's function may raise anything
            # torch raises RuntimeError where NumPy raises MemoryError.
            memory = isinstance(raised, MemoryError) or "can't allocate memory" in str(raised)
            error, kind = _shown(self._path, self._audit.shown, raised), "memory" if memory else ""
        # The first call imports modules of torch, such as sympy.
        cpu = time.process_time() - began if self._called else 0.0
        self._called = True
        return Answer(outputs=outputs, error=error, kind=kind, cpu=cpu, problems=tuple(self._audit.problems[known:]))

    def _outputs(self, call: Call) -> tuple[Array | None, ...] | None:
        function = getattr(self._module, call.function, None)
        if not callable(function):
            if call.optional:
                return None
            raise DataError(
                f"{self._audit.shown}: no function named {call.function}(); the operator's name is expected"
            )
        seen: set[int] = set()
        inputs = [_as_tensors(argument, seen) for argument in call.inputs]
        attributes = {n: _as_tensors(v, seen) if isinstance(v, np.ndarray) else v for n, v in call.attributes.items()}
        memory = memory_limit(call.megabytes) if call.megabytes else nullcontext()
        # Not in the first call: a module whose import was stopped would stay incomplete.
        slow = cpu_limit(call.seconds) if call.seconds and self._called else nullcontext()
        with memory, slow, torch.no_grad(), self._watched():
            result = function(*inputs, **attributes)
        return tuple(self._as_array(output, call) for output in flat(result))

    def _as_array(self, output: Any, call: Call) -> Array | None:
        if output is None:
            return None
        if not isinstance(output, torch.Tensor):
            kind = f"{type(output).__module__}.{type(output).__qualname__}".removeprefix("builtins.")
            raise DataError(
                f"{self._audit.shown}: {call.function}() returns {kind}, allowed: a torch.Tensor, or a tuple of them"
            )
        return as_array(output.detach().resolve_conj().resolve_neg().contiguous())

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with _Functions(self._refuse), _Dispatched(self._refuse), self._audit.watching():
            yield

    def _refuse(self, name: str) -> None:
        """Raise for an operator that is under test; `name` may have an overload."""
        qualified = name.partition(".")[0]
        if qualified in self._refused:
            reference_audit.refuse(self._audit, _why(qualified))


def _why(qualified: str) -> str:
    return (
        f"calls {qualified}, the operator under test, so it agrees with any fault. Write the reference in other "
        "operators of torch, or in NumPy"
    )


class _Functions(TorchFunctionMode):
    """Sees functions of torch and calls of torch.ops, also of an operator that is decomposed before the dispatcher."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        super().__init__()
        self._refuse = refuse

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "_qualified_op_name", None) or getattr(func, "_name", None)
        self._refuse(str(name) if name else f"aten::{getattr(func, '__name__', '')}")
        return func(*args, **(kwargs or {}))


class _Dispatched(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types for it
    """Sees what the dispatcher calls, from Python, C++ and TorchScript."""

    def __init__(self, refuse: Callable[[str], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self._refuse = refuse

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._refuse(func.name())
        return func(*args, **(kwargs or {}))


def _refuse_unloaded(refused: frozenset[str], audit: Audit) -> None:
    """Name the mistake where torch.ops has no such operator, because this process does not load it."""
    original = _OpNamespace.__getattr__

    def look_up(namespace: Any, name: str) -> Any:
        try:
            return original(namespace, name)
        except AttributeError:
            if (qualified := f"{namespace.name}::{name}") in refused:
                reference_audit.refuse(audit, _why(qualified))
            raise

    _OpNamespace.__getattr__ = look_up  # type: ignore[method-assign]  # in this process, which does nothing else


def _as_tensors(argument: Any, seen: set[int]) -> Any:
    """Return tensors with memory of their own. `seen` has the identities of the arrays converted so far: pickle
    keeps an array that is given twice as one, and a reference may write to its inputs."""
    if isinstance(argument, tuple):
        return [_as_tensors(one, seen) for one in argument]
    if argument is None:
        return None
    own = argument.flags.writeable and id(argument) not in seen
    seen.add(id(argument))
    return as_tensor(argument if own else argument.copy())


def _shown(path: Path, name: str, error: BaseException) -> str:
    """Return ``ops/name/reference.py:12: ValueError: why``; 12 is its last line in the traceback."""
    line = line_in(path, error)
    return f"{name}{f':{line}' if line else ''}: {type(error).__name__}: {error}"


def main(root: str, operator: str, declared: str, *refused: str) -> None:
    """Answer calls until standard input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the reference prints belongs to the log
    torch.set_num_threads(1)
    loaded, error = None, ""
    try:
        loaded = Evaluator(Paths(Path(root)), operator, frozenset(refused), declared=declared == "dependent")
    except Exception as raised:  # a user's module may raise anything
        path = Paths(Path(root)).reference(operator)
        shown = str(path.relative_to(root))
        error = _shown(path, shown, raised)
        if isinstance(raised, FileNotFoundError) and not line_in(path, raised):
            error = f"{shown}: missing; it defines {operator}() in torch"
    pickle.dump(torch.__version__.partition("+")[0], answers)
    answers.flush()
    while True:
        try:
            call = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(loaded.answer(call) if loaded else Answer(error=error), answers, PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
