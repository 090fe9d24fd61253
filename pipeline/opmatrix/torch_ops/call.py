"""Call an operator in torch: find it, pass its attributes under the names of the torch schema, name the torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from opmatrix.basics.errors import ExportError
from opmatrix.basics.version import minor
from opmatrix.data.case_arrays import generator_state
from opmatrix.signature.signature import (
    BY_POSITION,
    WrittenArgument,
    attribute_values,
    call_of,
    callers_name,
    is_composed,
    is_written,
    scalars,
    seed_range,
    seeds,
    torch_arguments,
    torch_name,
    torch_qualified,
    written_call,
    written_schema,
)
from opmatrix.sizes.variadic import flat
from opmatrix.spec import Model, OpSpec
from opmatrix.toolchain.headers import identity
from opmatrix.torch_ops.aten_overloads import overload_named, registered_operator

# The exceptions that torch, and a binding through torch, raise for an invalid call.
CALL_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)


def torch_operator(spec: OpSpec) -> Any:
    """Return the operator of a declaration, or its overload. Raises AttributeError if it is not registered."""
    return registered_operator(torch_qualified(spec))


def registered_overload(spec: OpSpec) -> Any:
    """Return the overload of a declaration. Raises AttributeError if it is not registered."""
    return overload_named(torch_qualified(spec))


def as_tuple(returned: Any) -> tuple[torch.Tensor, ...]:
    """Return the outputs of an operator as a tuple: torch returns a single one without, and a list for a variadic
    one."""
    return flat(returned)


def has_inferred_names(schema: Any) -> bool:
    """Return whether torch named a schema's arguments itself, ``_0``, ``_1``: RegisterOperators and
    m.def(name, &function) pass no names."""
    return bool(schema.arguments) and all(a.name == f"_{n}" for n, a in enumerate(schema.arguments))


def torch_attributes(spec: OpSpec, model: Model) -> dict[str, Any]:
    """Return the value of every attribute, defaults included, by its name in the registered schema."""
    values = attribute_values(spec, model)
    names: dict[str, str] = {}
    if spec.torch and not spec.torch.overrides and has_inferred_names(registered_overload(spec)._schema):
        names = {argument.name: f"_{n}" for n, argument in enumerate(torch_arguments(spec))}
    return {
        names.get(torch_name(a), torch_name(a)): list(value) if isinstance(value := values[a.name], tuple) else value
        for a in spec.attributes
        if a.name in values and a.kind != "tensor"
    }


def torch_call(spec: OpSpec, model: Model, inputs: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with `inputs` in the declared order: those by position, and those by name."""
    return call_of(spec, torch_attributes(spec, model))(inputs)


def with_attributes(operator: Callable[..., Any], spec: OpSpec, model: Model) -> Callable[..., Any]:
    """Return the operator as a function of its inputs in the declared order."""
    attributes = torch_attributes(spec, model)
    if written_schema(spec) is None and not any(name in attributes for name in BY_POSITION):
        return partial(operator, **attributes)
    order = call_of(spec, attributes)

    def call(*inputs: Any) -> Any:
        positional, keywords = order(inputs)
        return operator(*positional, **keywords)

    return call


def as_called_by_others(spec: OpSpec, model: Model) -> Callable[..., Any]:
    """Return the operator as a function of its inputs in the declared order, which returns all outputs.

    One that writes arguments gets copies of them.
    """
    return ComposedCall(spec, model) if is_composed(spec) else with_attributes(torch_operator(spec), spec, model)


def _of_another_type(number: Any) -> Any:
    """Return an equal int for a float, and an equal float for an int, where there is one: a Scalar may be either."""
    if type(number) not in (int, float) or not 0 < abs(number) < 2**53:  # an int has no -0.0
        return number
    other = float(number) if isinstance(number, int) else int(number)
    return other if other == number else number


def _value(argument: WrittenArgument) -> Any:
    """Return the value of an argument; of one that `TorchOp.fixed` has, torch's object of that name."""
    if argument.constant is None:
        return argument.value
    if argument.constant == "cpu":
        return torch.device("cpu")
    if (constant := getattr(torch, argument.constant, None)) is None:
        raise ExportError(
            f"TorchOp.fixed gives {argument.name!r} the value {argument.constant}, which torch {torch.__version__} "
            "does not have. Leave this torch out of the cells, as in `doit torch=2.9,2.13`, or give another value"
        )
    return constant


class ComposedCall:
    """A call of a composed operator, as a function of the inputs that returns all outputs.

    Arguments that it writes are copies, a Scalar is of another type than the declared one, and a generator gives the
    declared seed.
    """

    def __init__(self, spec: OpSpec, model: Model) -> None:
        schema, values = written_schema(spec), torch_attributes(spec, model)
        assert schema is not None
        self.overload = overload_named(callers_name(spec))
        self._functional = with_attributes(torch_operator(spec), spec, model)
        call, numbers = written_call(spec, values), scalars(spec)
        given = [_of_another_type(a.value) if a.name in numbers else _value(a) for a in call.arguments]
        self._call = replace(
            call, arguments=tuple(replace(a, value=value) for a, value in zip(call.arguments, given, strict=True))
        )
        self._generators: dict[
            str, tuple[torch.Generator, torch.Tensor]
        ] = {}  # with the state that gives the seed next
        for name, seed in seeds(spec).items():
            if values.get(name) is not None:
                state = bytearray(generator_state(values[name], *seed_range(seed)))
                self._generators[name] = torch.Generator(), torch.frombuffer(state, dtype=torch.uint8)
        letters = {a.type.alias: a.name for a in schema.arguments if is_written(a)}
        self._aliases = [letters.get(result.type.alias) for result in schema.results]

    def by_name(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """Return the arguments by name: those that are written are copies, and for ``out=`` empty tensors. A generator
        is the same one each time, and begins anew."""
        arguments = {}
        for a in self._call.arguments:
            arguments[a.name] = a.value if a.input is None else inputs[a.input]
            if a.output is not None:
                made = as_tuple(self._functional(*inputs))[a.output] if a.input is None else None
                arguments[a.name] = arguments[a.name].clone() if made is None else torch.empty_like(made)
        for name, (generator, state) in self._generators.items():
            arguments[name] = generator.set_state(state)
        return arguments

    def ordered(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments by position, and those by name alone."""
        positional = [arguments[a.name] for a in self._call.arguments if not a.keyword]
        return positional, {a.name: arguments[a.name] for a in self._call.arguments if a.keyword}

    def foreign(self, arguments: dict[str, Any], returned: Any) -> list[str]:
        """Return the arguments that the schema returns, and the call does not."""
        results = () if returned is None else returned if isinstance(returned, tuple) else (returned,)
        pairs = zip(self._aliases, results, strict=True)
        return [name for name, result in pairs if name is not None and result is not arguments[name]]

    def outputs(self, arguments: dict[str, Any], returned: Any) -> Any:
        """Return all outputs of a call with these arguments: those that it returned, and those that it wrote."""
        results = returned if isinstance(returned, tuple) else (returned,)  # a list is one output
        outputs = tuple([results[n] if name is None else arguments[name] for name, n in self._call.outputs])
        return outputs if len(outputs) > 1 else outputs[0]

    def __call__(self, *inputs: Any, **others: Any) -> Any:
        """Call the operator with these inputs, and with `others` by the names of the schema."""
        given = self.by_name(inputs)
        given.update(others)  # torch.export of 2.6 traces no `|`
        positional, by_name = self.ordered(given)
        return self.outputs(given, self.overload(*positional, **by_name))


def torch_minor() -> str:
    """Return the running torch as cells name it: "2.13"."""
    return minor(torch.__version__)


def torch_identity() -> str:
    """Return the running torch as the `compile` stage writes it for a library that fits one torch alone."""
    return identity(torch.__version__, cxx11_abi=torch._C._GLIBCXX_USE_CXX11_ABI)
