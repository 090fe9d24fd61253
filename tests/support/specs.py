"""Declarations for unit tests, written as signatures."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from opmatrix.spec import Attribute, Dims, FromKernel, Input, OnnxOp, OpSpec, Output, SameAs, Tolerance, TorchOp

EXACT = Tolerance(rtol=0.0, atol=0.0)
FLOATS = {"T": ("float32", "float64")}
MARKS: dict[str, dict[str, bool]] = {"": {}, "?": {"optional": True}, "*": {"variadic": True}}
KINDS = {bool: "bool", int: "int", float: "float", str: "string"}
TENSOR = re.compile(r"(?P<type>\w+)(\[(?P<dims>.*)\])?(?P<mark>[?*]?)( like (?P<like>\w+))?")


def declare(
    signature: str,
    *parts: Input | Attribute | Output,
    torch: str | TorchOp | None = None,
    onnx: str | OnnxOp | None = None,
    **fields: Any,
) -> OpSpec:
    """Return a declaration: ``declare("gate(x: T[N, M], bias: T[M]?, least=0.5) -> y: T like x", types=FLOATS)``.

    `inputs` and `outputs` have the notation of tensors. An attribute has the kind of its default. `parts` follow those
    of the signature. `torch` is ``namespace::name``; `onnx` is ``domain::OpType``, by default ``test.domain::Gate``.
    Without `tolerances`, each output has EXACT.
    """
    head, _, returned = signature.partition(" -> ")
    name, _, given = head.removesuffix(")").partition("(")
    attributes = tuple(attribute(text) for text in split(given) if "=" in text)
    made = (
        *inputs(", ".join(text for text in split(given) if "=" not in text)),
        *attributes,
        *outputs(returned),
        *parts,
    )
    found = {kind: tuple(part for part in made if isinstance(part, kind)) for kind in (Input, Attribute, Output)}
    types = fields.get("types", {})
    exact = {dtype: EXACT for part in found[Output] for dtype in types.get(part.type, (part.type,))}
    if not isinstance(onnx, OnnxOp):
        domain, op_type = (onnx or f"test.domain::{name.capitalize()}").split("::")
        onnx = OnnxOp(domain=domain, op_type=op_type)
    return OpSpec(
        name=name,
        torch=TorchOp(name=torch) if isinstance(torch, str) else torch,
        onnx=onnx,
        inputs=found[Input],
        attributes=found[Attribute],
        outputs=found[Output],
        **{"summary": "", "tolerances": dict.fromkeys(fields.get("lowerings", ("custom",)), exact), **fields},
    )


def inputs(text: str, **fields: Any) -> tuple[Input, ...]:
    """Return ``x: T[N, 3, ...], flag: bool[], bias: T[C]?, others: T*, z: T like x``; each has the further fields.

    ``?`` means optional, ``*`` variadic. Without brackets the shape is any.
    """
    return tuple(
        Input(name=name, type=found["type"], dims=sizes(found), same_as=found["like"], **MARKS[found["mark"]], **fields)
        for name, found in tensors(text)
    )


def outputs(text: str, **fields: Any) -> tuple[Output, ...]:
    """Return ``y: T like x, twice: int64[N, 2*M], found: int64[?, ?]``: the kernel decides the sizes ``?``."""
    return tuple(Output(name=name, type=found["type"], shape=shape(found), **fields) for name, found in tensors(text))


def shape(found: re.Match[str]) -> SameAs | Dims | FromKernel:
    dims = sizes(found)
    if dims is None:
        return SameAs(input=found["like"])
    return FromKernel(rank=len(dims)) if set(dims) == {"?"} else Dims(dims=dims)


def attribute(text: str, **fields: Any) -> Attribute:
    """Return ``strides=(1, 1)``, with the further fields."""
    name, default = text.split("=", 1)
    value = ast.literal_eval(default)
    kind = KINDS[type(value[0])] + "s" if isinstance(value, tuple) else KINDS[type(value)]
    return Attribute(name=name, kind=kind, default=value, **fields)


def split(text: str) -> list[str]:
    return re.split(r", (?=\w+[:=])", text) if text else []


def tensors(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    """Yield the name of each tensor, and the groups of `TENSOR`."""
    for part in split(text):
        name, _, rest = part.partition(": ")
        found = TENSOR.fullmatch(rest)
        assert found, f"{part!r} is no tensor"
        yield name, found


def sizes(found: re.Match[str]) -> tuple[str | int, ...] | None:
    if found["dims"] is None:
        return None
    return tuple(int(size) if size.isdigit() else size for size in found["dims"].split(", ") if size)
