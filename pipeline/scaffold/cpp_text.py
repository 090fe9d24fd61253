"""Pieces of C++ text, laid out as clang-format would, of a draft's kernel.h. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pipeline.glue import cpp
from pipeline.glue.cpp import WIDTH, quoted
from pipeline.glue.native_parts import cpp_type, kernel_parameters
from pipeline.scaffold.draft import VALUES, Draft, fresh
from pipeline.spec import Attribute, Input, OpSpec, Output


def comment(text: str, *, indent: int = 0) -> str:
    """Return `text` as lines of comment, the first one without its margin."""
    margin = " " * indent
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=f"{margin}// ", subsequent_indent=f"{margin}// ", break_long_words=False
    )
    return "\n".join(lines).lstrip()


def signature(spec: OpSpec) -> str:
    """Return the head of the kernel, up to and with its opening brace."""
    return cpp.call(f"{'' if spec.types else 'inline '}void {spec.name}", kernel_parameters(spec, {}), tail=" {")


def typenames(spec: OpSpec) -> str:
    return ", ".join(f"typename {variable}" for variable in spec.types)


def names(spec: OpSpec) -> set[str]:
    """Return every name that the kernel has already."""
    parts: list[Input | Attribute | Output] = [*spec.inputs, *spec.attributes, *spec.outputs]
    return {part.name for part in parts} | set(spec.types) | {spec.name}


def readings(draft: Draft) -> Iterator[tuple[str, str]]:
    """Yield, for each argument but the first required input, how it is read: a comment, and a statement."""
    spec = draft.spec
    taken = names(spec)
    number = next(iter(spec.types), "float") if draft.first.type in spec.types else cpp_type(spec, draft.first.type)
    for part in spec.inputs:
        if part is not draft.first:
            yield _input(spec, part, taken)
    for attribute in spec.attributes:
        yield _attribute(attribute, number, taken)


def _variable(type_: str, name: str, value: str, taken: set[str]) -> str:
    name = fresh(name, taken)
    taken.add(name)
    line = f"[[maybe_unused]] const {type_} {name} = {value};"
    return line if len(line) + 2 <= WIDTH else f"[[maybe_unused]] const {type_} {name} =\n      {value};"


def _input(spec: OpSpec, part: Input, taken: set[str]) -> tuple[str, str]:
    name, element = part.name, f"const {cpp_type(spec, part.type)}"
    if part.variadic:
        return (
            f"{name}, a variadic input: {name}[k] is a tensor, k < {name}.size(), and for (const auto& one : {name}) "
            f"takes them all.",
            _variable("std::int64_t", f"{name}_count", f"{name}.size()", taken),
        )
    if part.optional:
        return (
            f"{name}, an optional input: if ({name}) it is there, and its elements are {name}->data[i].",
            _variable(f"{element}* const", f"{name}_data", f"{name} ? {name}->data : nullptr", taken).replace(
                "const const", "const"
            ),
        )
    return (
        f"{name}, a tensor: {name}.data[i] for i below {name}.numel(); {name}.rank() and {name}.size(axis).",
        _variable(f"{element}* const", f"{name}_data", f"{name}.data", taken).replace("const const", "const"),
    )


def _attribute(attribute: Attribute, number: str, taken: set[str]) -> tuple[str, str]:
    name, kind = attribute.name, attribute.kind
    if kind == "string":
        text = attribute.default if isinstance(attribute.default, str) else str(VALUES["string"][0])
        found = _variable("bool", f"is_{name}", f"equal({name}, {quoted(text)})", taken)
        return f"{name}, a text.", found
    if kind.endswith("s"):
        found = _variable("std::int64_t", f"{name}_count", f"{name}.size()", taken)
        return f"{name}, a list of {kind}: {name}[k], and for (const auto one : {name}) takes them all.", found
    if kind == "bool":
        return f"{name}, a bool.", _variable(number, f"{name}_value", f"{name} ? {number}(1) : {number}(0)", taken)
    of = "a float, as ONNX stores it" if kind == "float" else "an int of 64 bits"
    return f"{name}, {of}.", _variable(number, f"{name}_value", f"static_cast<{number}>({name})", taken)


def needs_list(spec: OpSpec) -> bool:
    """Return whether kernel.h includes list.h: for lists, texts and variadic inputs."""
    return any(i.variadic for i in spec.inputs) or any(
        a.kind == "string" or a.kind.endswith("s") for a in spec.attributes
    )
