"""Load and call an operator's reference.py, and require that its outputs have the declared number and dtypes.

One in NumPy is loaded here; one in torch runs in another process (`opmatrix.data.torch_reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from opmatrix.basics.errors import DataError
from opmatrix.basics.files import line_in, load_module
from opmatrix.data import reference_audit, torch_reference
from opmatrix.data.arrays import Array, dtype_name, is_small, is_text, kind, numpy_dtype, rounded
from opmatrix.project.dtypes import FLOATS
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import dtype_of, is_off
from opmatrix.sizes.variadic import count, flat, reason, variadic_output, with_outputs
from opmatrix.spec import Attribute, AttributeValue, DType, OpSpec

Precision = Literal["declared dtype", "float64", "longdouble"]
"""The dtype in which a reference is evaluated: that of its inputs, or one to which the floating ones are widened."""

# The reference's argument for one input: None for an absent one, a tuple for a variadic one.
Argument = Array | tuple[Array, ...] | None

# The kinds of NumPy dtypes that may be cast to a declared kind; to the others, which are floats (bfloat16 has kind V),
# only floats. A float64 of a float32 operator is good practice; an integer was rounded where a kernel does not round.
_ACCEPTED = {"b": "b", "i": "biu", "u": "biu", "O": "OU"}


class Reference:
    """The function of reference.py that has the operator's name."""

    def __init__(self, paths: Paths, spec: OpSpec) -> None:
        """Load it. Raises DataError where the file is missing, raises, or has no such function."""
        self._paths, self._spec = paths, spec
        self._path = paths.reference(spec.name)
        self._shown = str(self._path.relative_to(paths.root))
        self._audit = reference_audit.watch(paths, spec.name, declared=bool(spec.dependent_reference))
        if spec.reference == "torch":
            self._function: Callable[..., Any] = torch_reference.function(paths, spec, self._audit.problems)
            return
        try:
            with self._audit.watching():
                module = load_module(self._path, "reference")
        except FileNotFoundError as error:
            raise DataError(f"{self._shown}: missing; it defines {spec.name}() in NumPy") from error
        except Exception as error:  # a user's module may raise anything
            raise DataError(self._raised(error)) from error
        function = getattr(module, spec.name, None)
        if not callable(function):
            raise DataError(f"{self._shown}: no function named {spec.name}(); the operator's name is expected")

        def watched(*inputs: Any, **attributes: Any) -> Any:
            with self._audit.watching():
                return function(*inputs, **attributes)

        self._function = watched

    def __call__(
        self,
        inputs: Sequence[Argument],
        attributes: Mapping[str, AttributeValue],
        *,
        precision: Precision = "declared dtype",
    ) -> tuple[Array, ...]:
        """Return the outputs, evaluated in `precision`, each cast to its declared dtype.

        `attributes` have ONNX names, and floats rounded to float32. Raises DataError where the reference raises, or
        returns another number of outputs, or one that cannot be cast without loss.
        """
        if precision == "declared dtype":
            return self.rounded(self.raw(inputs, attributes), inputs)
        with np.errstate(all="ignore"):  # what is out of range here may be another value than in the declared dtype
            return self.rounded(self.raw(widened(inputs, precision), attributes), inputs)

    def raw(self, inputs: Sequence[Argument], attributes: Mapping[str, AttributeValue]) -> tuple[Array, ...]:
        """Return the outputs in the dtypes that the function gives them."""
        tensors = {a.name: a for a in self._spec.attributes if a.kind == "tensor" and a.name in attributes}
        arrays = {name: tensor_array(a, attributes[name]) for name, a in tensors.items()}
        try:
            result = self._function(*inputs, **dict(attributes) | arrays)
        except DataError:  # of the process that evaluates a reference in torch
            raise
        except Exception as error:  # a user's function may raise anything
            raise DataError(self._raised(error)) from error
        outputs = result if isinstance(result, tuple) else (result,)
        if last := variadic_output(self._spec):
            outputs = flat(result)
            found = len(outputs) - len(self._spec.outputs) + 1
            given = dict(zip((part.name for part in self._spec.inputs), inputs, strict=True))
            if not (wanted := count(self._spec, given, attributes)):
                raise DataError(f"output {last.name!r} has no tensor, {reason(self._spec)}; allowed: at least one")
            if found != wanted:
                raise DataError(
                    f"{self._shown}: gives {found} tensors of {last.name!r}, declared: {wanted}, {reason(self._spec)}. "
                    "Return a list of them"
                )
        elif len(outputs) != len(self._spec.outputs):
            raise DataError(f"{self._shown}: gives {len(outputs)} outputs, declared: {len(self._spec.outputs)}")
        return self._without_off([*map(np.asarray, outputs)], inputs, attributes)

    def _without_off(
        self, outputs: list[Array], inputs: Sequence[Argument], attributes: Mapping[str, AttributeValue]
    ) -> tuple[Array, ...]:
        """Return the outputs, an empty one where an attribute says that there is none, whatever the reference gave."""
        widest = max((o.dtype for o in outputs if o.dtype.kind == "f"), key=lambda d: d.itemsize, default=None)
        for index, part in enumerate(self._spec.outputs):
            if is_off(self._spec, part, attributes):
                declared = dtype_of(part.type, types_of(self._spec, inputs) if part.type in self._spec.types else {})
                outputs[index] = np.empty(0, (declared in FLOATS and widest) or numpy_dtype(declared))
        return tuple(outputs)

    def rounded(self, outputs: Sequence[Array], inputs: Sequence[Argument]) -> tuple[Array, ...]:
        """Return the outputs in the dtypes that the declaration gives them for `inputs`."""
        types = types_of(self._spec, inputs)
        return tuple(
            self._cast(output, part.name, dtype_of(part.type, types))
            for output, part in zip(outputs, with_outputs(self._spec, len(outputs)).outputs, strict=True)
        )

    def require_independent(self) -> None:
        """Raise DataError if it used what it should judge, even if it caught the exception for that."""
        if self._spec.reference == "torch":
            self._audit.problems.extend(torch_reference.of(self._paths, self._spec).traces())
        else:
            self._audit.finish()
        if self._audit.problems:
            raise DataError("\n".join(dict.fromkeys(self._audit.problems)))

    def _raised(self, error: Exception) -> str:
        """Return ``ops/name/reference.py:12: ValueError: why``; 12 is its last line in the traceback."""
        line = line_in(self._path, error)
        return f"{self._shown}{f':{line}' if line else ''}: {type(error).__name__}: {error}"

    def _cast(self, output: Array, name: str, dtype: DType) -> Array:
        target = numpy_dtype(dtype)
        if not _fits(output, target):
            raise DataError(
                f"{self._shown}: output {name!r} is {dtype_name(output)}, declared: {dtype}. Return that, or a wider "
                "dtype of the same kind that has the same values"
            )
        if dtype == "string" and not all(map(is_text, output.ravel().tolist())):
            wrong = next(value for value in output.ravel().tolist() if not is_text(value))
            raise DataError(f"{self._shown}: output {name!r} has {wrong!a}, allowed: str that UTF-8 can hold")
        with np.errstate(all="ignore"):  # a value out of the declared dtype's range becomes infinite, as in a kernel
            # An array of the process that evaluates in torch belongs to nobody else.
            return rounded(output, target, copy=self._spec.reference != "torch")


def tensor_array(attribute: Attribute, value: AttributeValue) -> Array:
    """Return the value of a tensor attribute; one without elements has the size 0 where the declaration has none."""
    sizes = tuple(0 if dim is None else dim for dim in attribute.dims or ())
    found = np.asarray(value, numpy_dtype(attribute.type or "float32"))
    return found if found.size else found.reshape(found.shape + sizes[found.ndim :])


def tensors(argument: Argument) -> tuple[Array, ...]:
    """Return the arrays of an argument."""
    return argument if isinstance(argument, tuple) else () if argument is None else (argument,)


def with_each(argument: Argument, change: Callable[[Array], Array]) -> Argument:
    """Return an argument with each of its arrays changed."""
    if isinstance(argument, tuple):
        return tuple(map(change, argument))
    return None if argument is None else change(argument)


def widened(inputs: Sequence[Argument], precision: Precision) -> tuple[Argument, ...]:
    """Return the inputs with floating arrays in `precision`: the same values, since each is wider than all dtypes."""

    def wide(array: Array) -> Array:
        return array.astype(precision) if dtype_name(array) in FLOATS and precision != "declared dtype" else array

    return tuple(with_each(argument, wide) for argument in inputs)


def types_of(spec: OpSpec, inputs: Sequence[Argument]) -> dict[str, DType]:
    """Return the dtype of each type variable that a given input has."""
    names: dict[str, str] = {}
    for part, argument in zip(spec.inputs, inputs, strict=True):
        for array in tensors(argument):
            names.setdefault(part.type, dtype_name(array))
    return {variable: names[variable] for variable in spec.types if variable in names}  # type: ignore[misc]  # a dtype_name is a DType


def _fits(output: Array, target: np.dtype[Any]) -> bool:
    """Return whether an output has an accepted kind, numbers of at least the size of `target`, and no integer that a
    cast would change. A bool is 0 or 1 in any integer."""
    if output.dtype == target:
        return True
    if kind(output.dtype) not in _ACCEPTED.get(kind(target), "f"):
        return False
    least = target.itemsize + is_small(target)  # a float16 holds no bfloat16
    if output.dtype.kind in "iuf" and output.dtype.itemsize < least:
        return False
    return kind(target) not in "iu" or bool((output.astype(target).astype(output.dtype) == output).all())
