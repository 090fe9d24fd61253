"""Load and call an operator's reference.py, and require that its outputs have the declared number and dtypes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opmatrix.declaration.torch_signature import dtype_of
from opmatrix.errors import DataError
from opmatrix.files import line_in, load_module
from opmatrix.project.paths import Paths
from opmatrix.spec import AttributeValue, DType, OpSpec
from opmatrix.testdata.arrays import Array, dtype_name
from opmatrix.testdata.dtypes import numpy_dtype

# The reference's argument for one input: None for an absent one, a tuple for a variadic one.
Argument = Array | tuple[Array, ...] | None

# The kinds of NumPy dtypes that may be cast to a declared kind. Floats accept all numbers (bfloat16 has kind V).
_ACCEPTED = {"b": "b", "i": "biu", "u": "biu", "O": "OU"}


class Reference:
    """The function of reference.py that has the operator's name."""

    def __init__(self, paths: Paths, spec: OpSpec) -> None:
        """Load it. Raises DataError where the file is missing, raises, or has no such function."""
        self._spec = spec
        self._path = paths.reference(spec.name)
        self._shown = str(self._path.relative_to(paths.root))
        try:
            module = load_module(self._path, "reference")
        except FileNotFoundError as error:
            raise DataError(f"{self._shown}: missing; it defines {spec.name}() in NumPy") from error
        except Exception as error:  # a user's module may raise anything
            raise DataError(self._raised(error)) from error
        function = getattr(module, spec.name, None)
        if not callable(function):
            raise DataError(f"{self._shown}: no function named {spec.name}(); the operator's name is expected")
        self._function = function

    def __call__(self, inputs: Sequence[Argument], attributes: Mapping[str, AttributeValue]) -> tuple[Array, ...]:
        """Return the outputs, each cast to its declared dtype.

        `attributes` have ONNX names, and floats rounded to float32. Raises DataError where the reference raises, or
        returns another number of outputs, or one that cannot be cast without loss.
        """
        try:
            result = self._function(*inputs, **attributes)
        except Exception as error:  # a user's function may raise anything
            raise DataError(self._raised(error)) from error
        outputs = result if isinstance(result, tuple) else (result,)
        if len(outputs) != len(self._spec.outputs):
            raise DataError(f"{self._shown}: gives {len(outputs)} outputs, declared: {len(self._spec.outputs)}")
        types = _types(self._spec, inputs)
        return tuple(
            self._cast(np.asarray(output), part.name, dtype_of(part.type, types))
            for output, part in zip(outputs, self._spec.outputs, strict=True)
        )

    def _raised(self, error: Exception) -> str:
        """Return ``ops/name/reference.py:12: ValueError: why``; 12 is its last line in the traceback."""
        line = line_in(self._path, error)
        return f"{self._shown}{f':{line}' if line else ''}: {type(error).__name__}: {error}"

    def _cast(self, output: Array, name: str, dtype: DType) -> Array:
        target = numpy_dtype(dtype)
        if not _fits(output, target):
            raise DataError(f"{self._shown}: output {name!r} is {dtype_name(output)}, declared: {dtype}")
        with np.errstate(all="ignore"):  # a value out of the declared dtype's range becomes infinite, as in a kernel
            return output.astype(target, order="C")


def _types(spec: OpSpec, inputs: Sequence[Argument]) -> dict[str, DType]:
    """Return the dtype of each type variable that a given input has."""
    names: dict[str, str] = {}
    for part, argument in zip(spec.inputs, inputs, strict=True):
        for array in argument if isinstance(argument, tuple) else () if argument is None else (argument,):
            names.setdefault(part.type, dtype_name(array))
    return {variable: names[variable] for variable in spec.types if variable in names}  # type: ignore[misc]  # a dtype_name is a DType


def _fits(output: Array, target: np.dtype[Any]) -> bool:
    """Return whether a cast to `target` keeps the kind of number, and the value of an integer."""
    if output.dtype == target:
        return True
    if output.dtype.kind not in _ACCEPTED.get(target.kind, "biuf"):
        return False
    return target.kind not in "iu" or bool((output.astype(target) == output).all())
