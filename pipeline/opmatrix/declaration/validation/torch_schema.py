"""Compare the torch schema that a declaration contains with its inputs, attributes and outputs."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator

from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.declaration.validation.fields import Mistake, by_path, duplicates, not_one_of
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter, Schema, Value
from opmatrix.signature.signature import FIXED, is_fixed, is_required, is_written, torch_kind, torch_name, torch_parts
from opmatrix.signature.signature import torch_schema as derived_schema
from opmatrix.spec import Attribute, FromKernel, Input, OpSpec, SameAs

_MODULES = ("torch", "math")  # in the generated fake kernel
_Place = tuple[int, str]  # the offset in the schema, and what is wrong there


def torch_schema(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of a written torch schema: one with all places, and those that have none in it."""
    for path, part in by_path("inputs", spec.inputs):
        if part.torch_name and not (spec.torch and spec.torch.schema):
            yield Mistake(f"{path}.torch_name", f"found {part.torch_name!r}, allowed with torch.schema: a derived "
                          "schema has the input's own name")  # fmt: skip
    yield from _writes(spec)
    if spec.torch is None or not spec.torch.schema:
        if spec.torch and not spec.torch.overrides:
            try:
                parser.parse(derived_schema(spec))
            except UsageError as error:  # a name or a default in it
                yield Mistake("torch", f"the schema that follows from the declaration: {error}")
        if spec.torch and spec.torch.fixed:
            yield Mistake("torch.fixed", f"found {dict(spec.torch.fixed)}, allowed with torch.schema, which has the "
                          "arguments; a derived schema has inputs and attributes alone")  # fmt: skip
        return
    if spec.torch.overrides:
        yield Mistake("torch.schema", "allowed without torch.overrides: torch has the schema of its own operator")
        return
    if later := next((a.name for a in spec.attributes if a.since), None):
        yield Mistake("torch.schema", f"found with {later!r}, which has a `since`; allowed: one of both, because a "
                      "published schema of an earlier version would have another torch schema")  # fmt: skip
    try:
        schema = parser.parse(spec.torch.schema)
        if places := [*_places(spec, schema)]:
            parser.refuse("it does not fit the declaration:", schema.text, places)
    except UsageError as error:
        yield Mistake("torch.schema", str(error))
        return
    yield from _fixed(spec, schema)
    found = {a.name for a in schema.arguments}
    for own in torch_parts(spec):
        if (name := torch_name(own)) not in found:
            kind, parts = ("inputs", spec.inputs) if isinstance(own, Input) else ("attributes", spec.attributes)
            path = f"{kind}[{parts.index(own)}]"
            yield Mistake(path, f"torch.schema has no argument {name!r}{did_you_mean(name, found)}. Give it the "
                          "argument's name as torch_name, or add the argument")  # fmt: skip


def _places(spec: OpSpec, schema: Schema) -> Iterator[_Place]:
    assert spec.torch is not None
    qualified = schema.qualified if schema.namespace else f"{spec.torch.name.partition('::')[0]}::{schema.name}"
    if qualified != spec.torch.name:
        yield 0, f"the schema of {qualified}, allowed: {spec.torch.name}, which is torch.name"
    if why := parser.why_not_in_ops("overload", schema.overload):
        yield schema.text.index(".") + 1, why
    if schema.more:
        yield schema.text.index("..."), "any number of arguments of any kind, allowed: arguments with names"
    parts = {torch_name(part): part for part in torch_parts(spec)}
    names_written = [o.writes for o in spec.outputs]
    written = next((a for a in schema.arguments if is_written(a)), None)
    if written and spec.torch.python:
        yield written.type.at, f"{written.type.spelled} {written.name}, allowed without " \
            "torch.python: opmatrix defines the operator, with the functional one that it calls"  # fmt: skip
    if written and spec.outputs and spec.outputs[-1].variadic:
        yield written.type.at, f"{written.type.element}({written.type.alias}) {written.name}, allowed without a " \
            f"variadic output, which {spec.outputs[-1].name!r} is"  # fmt: skip
    for twice in duplicates([a.name for a in schema.arguments]):
        yield next(a.at for a in reversed(schema.arguments) if a.name == twice), f"{twice!r} a second time"
    for twice in duplicates([a.type.alias for a in schema.arguments if a.type.alias]):
        yield next(a.type.at for a in reversed(schema.arguments) if a.type.alias == twice), f"({twice}) a second " \
            "time, allowed: a letter for each argument"  # fmt: skip
    for argument in schema.arguments:
        part = parts.get(argument.name)
        if is_written(argument) and argument.type.name != "Tensor":
            if part not in [
                i for i in spec.inputs if not is_required(i) and i.name in names_written
            ]:  # `_writes` says it
                yield argument.type.at, parser.written_type(argument.type)
            continue
        if part is None:
            yield from _out(spec, argument) if argument.type.alias else _constant(spec, argument)
            continue
        yield from _input(spec, part, argument) if isinstance(part, Input) else _attribute(part, argument)
        if argument.type.element in ("Scalar", "Generator") and spec.torch.python:
            yield argument.type.at, f"{argument.type.name} {argument.name}, allowed without torch.python: opmatrix " \
                "defines the operator, with the one that it calls"  # fmt: skip
        if argument.keyword and (keyword.iskeyword(argument.name) or argument.name in _MODULES):
            why = "names something else in Python, allowed before '*', where Python passes it by position"
            yield argument.at, f"{argument.name!r} {why}"
    yield from _results(spec, schema)


_KINDS = f"{', '.join(FIXED)}, or one of them with ?, without a default"
# The types of an argument that is no input and no attribute, and can have a default other than None.
_NUMBERS = ("bool", "int", "SymInt", "float")


def _constant(spec: OpSpec, argument: Parameter) -> Iterator[_Place]:
    """Yield what is wrong with an argument that belongs to no input and no attribute: its default is its only value."""
    name, kind, value = argument.name, argument.type.name, argument.default
    named = [i.name for i in spec.inputs] + [a.name for a in spec.attributes] + [o.name for o in spec.outputs]
    near = did_you_mean(name, [torch_name(part) for part in torch_parts(spec)])
    given = spec.torch.fixed if spec.torch else {}
    fixed = is_fixed(argument)
    if fixed and name not in given:
        example = {name: None if kind.endswith("?") else FIXED[argument.type.element][0]}
        yield argument.type.at, f"{kind} {name} without a default, allowed with its one legal value in torch.fixed, " \
            f"such as {example}"  # fmt: skip
    elif name in given and not fixed:
        yield argument.type.at, f"{kind} {name}, which torch.fixed has, allowed: {_KINDS}"
    elif kind.startswith("Tensor") or (not argument.has_default and name not in given):
        yield argument.at, f"no input and no attribute is named {name!r}{near}, or has it as torch_name"
    elif name not in given and not (kind.endswith("?") if value is None else _is_number(kind, value)):
        yield argument.type.at, f"{kind} {name}, which is neither an input nor an attribute, allowed: a type with ? " \
            f"and the default None, or {', '.join(_NUMBERS)} with a number as the default; or {_KINDS}"  # fmt: skip
    elif name in named or keyword.iskeyword(name) or name in _MODULES:
        yield argument.at, f"{name!r} names something else in generated code, allowed: a name that no keyword, " \
            "input, attribute or output has"  # fmt: skip


def _fixed(spec: OpSpec, schema: Schema) -> Iterator[Mistake]:
    """Yield the mistakes of `TorchOp.fixed`; `schema` fits the declaration."""
    assert spec.torch is not None
    arguments = {a.name: a for a in schema.arguments}
    for name, value in spec.torch.fixed.items():
        path = f"torch.fixed[{name!r}]"
        if name not in arguments:
            yield Mistake(path, f"torch.schema has no argument {name!r}{did_you_mean(name, arguments)}")
            continue
        kind = arguments[name].type
        if not is_fixed(arguments[name]):
            yield Mistake(path, f"it is an input, an attribute or an output, allowed: another argument, {_KINDS}")
        elif value not in (allowed := [*FIXED[kind.element], *([None] if kind.name.endswith("?") else [])]):
            yield not_one_of(path, value, allowed)
    if spec.torch.fixed and spec.torch.python:
        yield Mistake("torch.fixed", "allowed without torch.python: opmatrix defines the operator, with the one that "
                      "it calls")  # fmt: skip


def _is_number(kind: str, value: Value) -> bool:
    if kind == "bool" or isinstance(value, bool):
        return kind == "bool" and isinstance(value, bool)
    return isinstance(value, int | float if kind == "float" else int) and kind in _NUMBERS


def _writes(spec: OpSpec) -> Iterator[Mistake]:
    required = {i.name: i for i in spec.inputs if is_required(i)}
    others = {i.name: "optional" if i.optional else "variadic" for i in spec.inputs if not is_required(i)}
    for path, output in by_path("outputs", spec.outputs):
        path, name = f"{path}.writes", output.writes
        if name is None:
            continue
        if name in others:
            why = f". {parser.WITHOUT_IT}" if others[name] == "optional" else ""
            yield Mistake(path, f"{name!r} is {others[name]}, allowed: a required input{why}")
        elif name not in required:
            yield not_one_of(path, name, [*required])
        elif spec.torch is None or not spec.torch.schema:
            yield Mistake(path, f"found {name!r}, allowed with torch.schema, in which the argument is Tensor(a!)")
        elif output.type != required[name].type:
            yield Mistake(path, f"{name!r} is of type {required[name].type}, the output of type {output.type}; "
                          "allowed: an input of the same type, which can hold the output")  # fmt: skip
        elif output.shape != SameAs(input=name):
            yield Mistake(path, f"found {name!r}, allowed with shape=SameAs(input={name!r}): the input must be able "
                          "to hold the output")  # fmt: skip
        elif output.optional:
            yield Mistake(path, f"found {name!r} and optional={output.optional!r}, allowed: one of both; torch always "
                          "writes the input")  # fmt: skip
    for twice in duplicates([o.writes for o in spec.outputs if o.writes]):
        yield Mistake("outputs", f"two outputs write {twice!r}, allowed: one")


def _is_plain(alias: str) -> bool:
    """Return whether an alias annotation is that of a written argument, ``a!``."""
    return re.fullmatch(r"[A-Za-z$]\w*!", alias) is not None


def _out(spec: OpSpec, argument: Parameter) -> Iterator[_Place]:
    """Yield what is wrong with an annotated argument that belongs to no input: it is the ``out=`` of an output."""
    found, name = argument.type, argument.name
    outputs = {o.name: o for o in spec.outputs if o.writes is None}
    if not _is_plain(found.alias):
        yield found.at, parser.aliased(found)
    elif name not in outputs:
        near = did_you_mean(name, [torch_name(i) for i in spec.inputs] + [*outputs])
        yield argument.at, f"{name!r} is written, allowed: an input that an output `writes`, or, for out=, the name " \
            f"of an output{near}"  # fmt: skip
    elif argument.has_default:
        yield argument.at, f"{name!r} has a default, allowed: {found.spelled} without a default"
    elif isinstance(outputs[name].shape, FromKernel):
        yield argument.at, f"only the kernel knows the size of {name!r}, allowed: an output whose size the caller " \
            "knows; return a new Tensor"  # fmt: skip
    elif outputs[name].optional:
        yield argument.at, f"{name!r} is optional, allowed: a required output; torch always writes the argument"


def _input(spec: OpSpec, part: Input, argument: Parameter) -> Iterator[_Place]:
    found, wanted = argument.type, torch_kind(part)
    written = next((o.name for o in spec.outputs if o.writes == part.name), None)
    if found.alias and not _is_plain(found.alias):
        yield found.at, parser.aliased(found)
    elif found.alias and written is None:
        yield found.at, f"{found.spelled} {argument.name} is written, and no output says with what; give " \
            f"one writes={part.name!r}, shape=SameAs(input={part.name!r}) and the input's type"  # fmt: skip
    elif written and not found.alias:
        yield found.at, f"{found.name} {argument.name}, allowed: {found.name}(a!), because the output {written!r} " \
            f"writes {part.name!r}"  # fmt: skip
    elif found.name != wanted:
        kind = "variadic" if part.variadic else "optional" if part.optional else "required"
        yield found.at, f"{found.name} {argument.name}, allowed: {wanted}, because the input {part.name!r} is {kind}"
    elif argument.has_default and (wanted != "Tensor?" or argument.default is not None):
        yield argument.at, f"{argument.name!r} has a default, allowed: Tensor? with the default None"


def types_of(part: Attribute) -> tuple[str, ...]:
    """Return the types of the torch schema that an attribute can have; a list can also have a length, as ``int[2]``."""
    derived = torch_kind(part)
    found = (derived, derived.replace("int", "SymInt")) if part.kind in ("int", "ints") else (derived,)
    return (*found, derived.replace(part.kind, "Scalar")) if part.kind in ("float", "int") else found


def _seed(part: Attribute, argument: Parameter) -> Iterator[_Place]:
    """Yield what is wrong with a generator that gives the value of an attribute, the seed."""
    shown, low, high = f"{argument.type.name} {argument.name}", part.minimum, part.maximum
    bounded = isinstance(low, int) and low >= -(2**63) and (high is None or (isinstance(high, int) and low < high))
    if part.kind != "int":
        yield argument.type.at, f"{shown}, allowed: the attribute {part.name!r} of kind int: a generator gives a seed"
    elif not bounded or part.allowed is not None:
        yield argument.type.at, f"{shown}, allowed: minimum=0 or another int in the attribute {part.name!r}, with or " \
            "without a maximum, and no `allowed`: a generator gives any number between them"  # fmt: skip
    elif argument.default is not None:
        yield argument.at, f"{argument.name!r} has the default {argument.default!r}, allowed: None"


def _attribute(part: Attribute, argument: Parameter) -> Iterator[_Place]:
    found = argument.type
    if found.name in ("Generator", "Generator?"):
        yield from _seed(part, argument)
        return
    allowed = types_of(part)
    if re.sub(r"\[\d+\]$", "[]", found.name) not in allowed:
        sized = [f"{allowed[0][:-1]}2]"] if part.kind in ("ints", "bools") else []
        shown = " or ".join((*allowed, *sized))
        yield found.at, f"{found.name} {argument.name}, allowed: {shown}, because the attribute {part.name!r} is of " \
            f"kind {part.kind}"  # fmt: skip
        return
    length = parser.length(found.name)
    if length is not None and part.kind == "floats":
        yield found.at, f"{found.name} {argument.name}, allowed: float[], whose length the kernel checks"
    if length is not None and isinstance(part.default, tuple) and len(part.default) != length:
        yield found.at, f"{found.name} {argument.name}, and the default of the attribute {part.name!r} has " \
            f"{len(part.default)} items: {part.default!r}"  # fmt: skip
    if not argument.has_default or (part.optional and argument.default is None):
        return
    if argument.default is None or (why := value_mistake(part, argument.default)):  # type: ignore[arg-type]  # judged there
        why = "found None, allowed: a value" if argument.default is None else why
        yield argument.at, f"the default of {argument.name!r}: {why}"
    elif part.default is not None and (
        part.default != argument.default or isinstance(part.default, bool) != isinstance(argument.default, bool)
    ):
        yield argument.at, f"{argument.name!r} has the default {argument.default!r}, allowed: {part.default!r}, the " \
            f"default of the attribute {part.name!r}; or give that one none"  # fmt: skip


def _results(spec: OpSpec, schema: Schema) -> Iterator[_Place]:
    written = {a.type.alias: a.name for a in schema.arguments if is_written(a)}
    last = spec.outputs[-1] if spec.outputs and spec.outputs[-1].variadic else None
    for result in schema.results:
        is_variadic = last is not None and result is schema.results[-1]
        if last and is_variadic and result.type.name != "Tensor[]":
            yield result.type.at, f"{result.type.name}, allowed: Tensor[], because the output {last.name!r} is variadic"
        elif not is_variadic and result.type.name != "Tensor":
            also = "; Tensor[] for a variadic output, the last one" if result.type.name == "Tensor[]" else ""
            why = f"{result.type.name}, allowed: Tensor for each output{also}"
            yield result.type.at, parser.EMPTY_RESULT if result.type.name == "Tensor?" else why
        elif result.type.alias and not is_written(result):
            yield result.type.at, parser.aliased(result.type)
        elif result.type.alias and result.type.alias not in written:
            yield result.type.at, parser.no_argument(result.type, schema)
    for twice in duplicates([r.type.alias for r in schema.results if r.type.alias]):
        yield schema.results_at, f"({twice}) is returned twice, allowed: once"
    fresh = sum(not r.type.alias for r in schema.results)
    inputs = {torch_name(i): i.name for i in spec.inputs}
    into = [inputs.get(a.name, a.name) for a in schema.arguments if is_written(a)]
    wanted = sum((o.writes or o.name) not in into for o in spec.outputs)
    if schema.more_results or fresh != wanted:
        count = "any number of" if schema.more_results else fresh
        which = "each output that is written into no argument" if written else "each output"
        yield schema.results_at, f"{count} results, allowed: {wanted}, one for {which}"
