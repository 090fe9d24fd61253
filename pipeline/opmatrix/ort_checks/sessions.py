"""Sessions of ONNX Runtime with custom-op libraries, and explanations of ONNX Runtime's errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as _state

from opmatrix.basics.errors import VerifyError, missing
from opmatrix.data.arrays import Array
from opmatrix.ort_checks.cast_edges import CastSession, needs_casts, with_float_edges
from opmatrix.project.cpu_levels import NO_LEVELS, LibraryLevels

# They have no common base class but Exception. ONNX Runtime's Python code raises ValueError for a wrong feed.
ORT_ERRORS: tuple[type[Exception], ...] = (
    ValueError,
    RuntimeError,
    *(v for v in vars(_state).values() if isinstance(v, type) and issubclass(v, Exception)),
)

# Graph optimisation and number of threads. With one thread, runs repeat to the last bit.
SETTINGS: Mapping[str, tuple[ort.GraphOptimizationLevel, int]] = {
    "optimised": (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, 1),
    "not optimised": (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, 1),
    "on two threads": (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, 2),
}


class RefusedError(VerifyError):
    """ONNX Runtime rejects a model, or a run of it fails."""


class TooNewError(RefusedError):
    """ONNX Runtime rejects a model for its IR version or its opset."""


class Session(Protocol):
    """The common interface of onnxruntime.InferenceSession and onnx.reference.ReferenceEvaluator."""

    def run(self, output_names: None, feed_inputs: Mapping[str, Array], /) -> Sequence[Array]: ...


class OrtSessions:
    """Makes sessions with one custom-op library or none, and with `more` libraries, each for other domains.

    With `sanitized`, each tensor is allocated separately, since sanitizers see no error within an arena.
    """

    def __init__(
        self, library: Path | None, *, more: Sequence[Path] = (), sanitized: bool = False, cpu_levels: bool = False
    ) -> None:
        """Load the libraries. Raises VerifyError where one is missing, or is no custom-op library. `cpu_levels`: the
        first has kernels for several levels of the processor."""
        self.library = library
        self._libraries = (*([library] if library else ()), *more)
        for path in self._libraries:
            if not path.exists():
                raise VerifyError(missing(path, run=f"python -m opmatrix compile {path.parent.name}"))
        self._options = self._all_options(arena=not sanitized)
        self.levels = LibraryLevels(library) if cpu_levels else NO_LEVELS

    def _all_options(self, *, arena: bool) -> dict[str, ort.SessionOptions]:
        return {
            name: _options(level, threads, self._libraries, arena=arena)
            for name, (level, threads) in SETTINGS.items()
            if threads == 1 or self.library  # how ONNX Runtime's own kernels split their work is not tested
        }

    @cached_property
    def _options_for_large(self) -> dict[str, ort.SessionOptions]:
        return self._all_options(arena=False)

    def sessions(
        self,
        model: bytes | str,
        *,
        settings: Sequence[str] | None = None,
        large: bool = False,
        without: Sequence[str] = (),
    ) -> dict[str, Session]:
        """Return one session per setting; `model` as a path allows external data. Raises RefusedError.

        `large`: they have no arena, which would keep the memory of all outputs until the session ends. `without`: the
        names of optimizers that are off.
        """
        options = self._options_for_large if large else self._options
        try:
            return {name: self._session(model, options[name], without) for name in settings or options}
        except ORT_ERRORS as error:
            kind = TooNewError if re.search(_TOO_NEW, str(error)) else RefusedError
            raise kind(explain(str(error))) from error

    def _session(self, model: bytes | str, options: ort.SessionOptions, without: Sequence[str]) -> Session:
        off = {"disabled_optimizers": [*without]} if without else {}
        session: Session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], **off)
        if not needs_casts(session):
            return session
        edges = with_float_edges(model, session)
        cast = ort.InferenceSession(edges, options, providers=["CPUExecutionProvider"], **off)
        return CastSession(session, cast=cast)


def _options(
    level: ort.GraphOptimizationLevel, threads: int, libraries: Sequence[Path], *, arena: bool
) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.enable_cpu_mem_arena = options.enable_mem_pattern = arena
    options.graph_optimization_level = level
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # an idle thread would occupy its core
    options.log_severity_level = 4  # errors come as exceptions; the log would repeat them
    for library in libraries:
        try:
            options.register_custom_ops_library(str(library))
        except ORT_ERRORS as error:
            raise VerifyError(explain(str(error))) from error
    return options


_TOO_NEW = (
    r"Unsupported model IR version|Opset \d+ is under development|is a list of strings, which ONNX Runtime gives to"
)

# Patterns of ONNX Runtime's error messages, with the explanation and the remedy.
_MEANINGS: Mapping[str, Callable[[re.Match[str]], str]] = {
    r"Failed to get symbol RegisterCustomOps with error: ([^:]+)": lambda m: (
        f"{m[1]} exports no RegisterCustomOps, so it is not a custom-op library of ONNX Runtime. The library whose "
        "name ends in _ort.so is; the one that ends in _torch.so goes to torch.ops.load_library"
    ),
    r"Failed to load library (\S+) with error: (.*)": lambda m: (
        f"{m[1]} cannot be loaded: {m[2]}. Build it again: python -m opmatrix compile {Path(m[1]).parent.name}"
    ),
    r"(\S+):(\w+)\((-?\d+)\) is not a registered function/op": lambda m: (
        f"the model has a node {m[1]}::{m[2]}, and no loaded library registers it. Compare domain, op type and version "
        "with those of `onnx` in ops/*/spec.py, and whether the session was given that operator's library"
    ),
    r"No opset import for domain '([^']*)'": lambda m: (
        f"the model has a node of the domain {m[1]!r}, but no opset import of it. Export it again: the exporter was "
        "not told the domain's version (custom_opsets, or the Opset of the translation)"
    ),
    r"Type '([^']+)' of input parameter \(([^)]+)\) of operator \(([^)]+)\)": lambda m: (
        f"no kernel of {m[3]} takes a {m[1]} as {m[2]}. Compare with `types` in ops/*/spec.py"
    ),
    r"no kernel def matches node inputs for Op: (\w+)|of Optype \((\w+)\) bound to different types": lambda m: (
        f"no kernel of {m[1] or m[2]} takes inputs of these dtypes together: all that ops/*/spec.py declares as one "
        "type variable have one dtype. Cast some of them in the model"
    ),
    r"schema\(([^)]+)::(\w+):\d+\) has input size (\d+) not in range \[min=(\d+), max=(\d+)\]": lambda m: (
        f"the model has a node {m[1]}::{m[2]} with {m[3]} inputs, allowed: {m[4]} to {m[5]}. Compare with `inputs` in "
        "ops/*/spec.py"
    ),
    r"Domain already set in registry": lambda m: (
        "the session was given two libraries that add one domain, or one library twice. Register each once, and give "
        "the operators of one domain one library"
    ),
    r"Could not find an implementation for (\w+)\((\d+)\)": lambda m: (
        f"no kernel of {m[1]} version {m[2]} takes these dtypes. Compare with `types` in ops/*/spec.py"
    ),
    r"Got invalid dimensions for input: (\S+) .*?index: (\d+) Got: (\d+) Expected: (\d+)": lambda m: (
        f"the model takes {m[4]} as size {m[2]} of {m[1]}, and was given {m[3]}: a dynamic size was baked in. Name the "
        "axis in the `dynamic` of its model in ops/*/cases.py, and read no size as a number in the lowering"
    ),
    r"cannot be reshaped to the requested shape. Input shape:(\{.*?\}), requested shape:(\{.*?\})": lambda m: (
        f"a Reshape to {m[2]} was given {m[1]}: where that is the size of the example, it was baked in as a constant. "
        "Take sizes from the tensor in the lowering: Shape and Gather, or g.dim()"
    ),
    r"Unsupported model IR version: (\d+), max supported IR version: (\d+)": lambda m: (
        f"the model has IR version {m[1]}, and ONNX Runtime {ort.__version__} reads {m[2]} at most. Export with an "
        "older opset, or install a newer ONNX Runtime"
    ),
    r"Opset (\d+) is under development.*support for domain (\S+) is till opset (\d+)": lambda m: (
        f"the model imports opset {m[1]} of {m[2]}, and ONNX Runtime {ort.__version__} reads {m[3]} at most. Export "
        "with an older opset, or install a newer ONNX Runtime"
    ),
}


def explain(text: str) -> str:
    """Return the explanation and the remedy of an ONNX Runtime error; of an unknown one, its text without prefix."""
    for pattern, meaning in _MEANINGS.items():
        if found := re.search(pattern, text, re.DOTALL):
            return meaning(found)
    return re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text).strip()


def call(session: Session, inputs: Mapping[str, Array]) -> tuple[Array, ...]:
    """Run a session once. Raises RefusedError with the explained error of ONNX Runtime or the kernel."""
    try:
        return tuple(session.run(None, inputs))
    except ORT_ERRORS as error:
        raise RefusedError(explain(str(error))) from error


def call_in_place(session: Any, inputs: Mapping[str, Array], pairs: Mapping[str, str]) -> tuple[Array, ...]:
    """Run a session whose outputs in `pairs` have the memory of a copy of that input. Raises RefusedError."""
    fed = {name: array.copy() for name, array in inputs.items()}
    return call_into(session, fed, {output: fed[given] for output, given in pairs.items()})


def call_into(session: Any, inputs: Mapping[str, Array], memory: Mapping[str, Array]) -> tuple[Array, ...]:
    """Run a session that writes the outputs in `memory` into these arrays, of their shape. Raises RefusedError."""
    binding = session.io_binding()
    try:
        for name, array in inputs.items():
            if array.size:
                binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            else:
                binding.bind_cpu_input(name, array)
        for name in (output.name for output in session.get_outputs()):
            if name in memory:
                array = memory[name]
                binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            else:
                binding.bind_output(name, "cpu")
        session.run_with_iobinding(binding)
        return tuple(binding.copy_outputs_to_cpu())
    except ORT_ERRORS as error:
        raise RefusedError(explain(str(error))) from error
