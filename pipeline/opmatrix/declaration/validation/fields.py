"""Find unknown, missing and wrongly typed fields, anywhere in a declaration: each a `Mistake`."""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from opmatrix.basics.errors import did_you_mean, nearest
from opmatrix.spec import MISSING

_COMPLEX = (
    "which no ONNX Runtime from 1.16 to 1.31 takes in a custom op. Declare {} with a last axis of 2, as "
    "torch.view_as_real gives it"
)
P = TypeVar("P")

WHY_NO_DTYPE: Mapping[str, str] = {
    "complex64": _COMPLEX.format("float32"),
    "complex128": _COMPLEX.format("float64"),
}
"""Why no declaration has a dtype that torch and ONNX have, and what to declare instead; docs/reference/dtypes.md."""


@dataclass(frozen=True)
class Mistake:
    """One mistake: where (a field path such as ``inputs[0].type``) and what is wrong with it. `usable`: the other
    fields have values, so that they can be checked too."""

    field: str
    text: str
    usable: bool = False


def not_one_of(field: str, value: object, allowed: Iterable[object]) -> Mistake:
    names = [str(a) for a in allowed]
    if "float32" in names and value in WHY_NO_DTYPE:
        return Mistake(field, f"found {value!r}, {WHY_NO_DTYPE[str(value)]}")
    return Mistake(field, f"found {value!r}, allowed: {', '.join(names)}{did_you_mean(str(value), names)}")


def by_path(kind: str, parts: Sequence[P]) -> list[tuple[str, P]]:
    """Return the inputs, attributes or outputs of a declaration, each behind its path, such as ``inputs[0]``."""
    return [(f"{kind}[{index}]", part) for index, part in enumerate(parts)]


def duplicates(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return sorted({n for n in names if names.count(n) > 1})


def structure(value: object, path: str = "") -> Iterator[Mistake]:
    """Yield the fields that do not match the dataclasses of `opmatrix.spec`, depth first."""
    if value is None or isinstance(value, float | bool):  # the most frequent types; every new plan calls this
        return
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            yield Mistake(path, f"found {value!r}, allowed: text that UTF-8 can encode")
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            bits = value.bit_length()
            yield Mistake(path, f"found an int of {bits} bits, allowed: one that int64 or uint64 can hold")
    elif path.count("[") > _DEEPEST:
        yield Mistake(f"{path[:40]}...", f"tuples in tuples, more than {_DEEPEST} deep; NumPy allows 64 axes")
    elif isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from structure(item, f"{path}[{index}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _fields(value, path)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from structure(item, f"{path}[{key!r}]")
    elif not isinstance(value, FunctionType):
        yield Mistake(path, f"found {value!r}, allowed: numbers, texts, tuples, dicts and classes of opmatrix.spec")


_OF_DTYPES = ("types", "type", "tolerances")  # the fields that contain names of dtypes
_DEEPEST = 80  # brackets in a path


def _fields(value: Any, path: str) -> Iterator[Mistake]:
    cls: Any = type(value)
    hints = _hints(cls)
    prefix = f"{path}." if path else ""
    missing = {name for kind, name in value.__mistakes__ if kind == "missing"}
    misspelt = {nearest(name, missing) for kind, name in value.__mistakes__ if kind == "unknown"}
    for kind, name in value.__mistakes__:
        if kind == "unknown":
            near = nearest(name, missing) or nearest(name, hints)
            rest = f"; did you mean {near!r}?" if near else f", allowed: {', '.join(hints)}"
            what = f"unknown argument of {cls.__name__}{rest}"
            yield Mistake(prefix + name, what, usable=near not in missing)
        elif kind == "positional":
            yield Mistake(path or cls.__name__, f"found {name} without a name; write FIELD=VALUE")
        elif name not in misspelt:  # else one mistake would be two
            yield Mistake(prefix + name, f"missing in {cls.__name__}; it has no default")
    for name, hint in hints.items():
        item = getattr(value, name)
        if item is MISSING:
            continue
        if not _fits(item, hint):
            if refused := next((t for t in _texts(item) if name in _OF_DTYPES and t in WHY_NO_DTYPE), None):
                yield Mistake(prefix + name, f"found {refused!r}, {WHY_NO_DTYPE[refused]}")
                continue
            yield Mistake(prefix + name, f"found {item!r}, allowed: {_spell(hint)}{_nearest(item, hint)}")
        else:
            yield from structure(item, prefix + name)


@cache
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


@cache
def _parts(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    return get_origin(hint), get_args(hint)


def _fits(value: object, hint: Any) -> bool:
    """Whether `value` has the type `hint`; an int fits a float, as in Python's typing."""
    origin, arguments = _parts(hint)
    if origin is Literal:
        return value in arguments
    if origin in (Union, types.UnionType):
        return any(_fits(value, a) for a in arguments)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if arguments and arguments[-1] is Ellipsis:
            return all(_fits(v, arguments[0]) for v in value)
        return len(value) == len(arguments)
    if origin is Callable:
        return callable(value)
    if origin is not None:  # Mapping[K, V]
        key, item = arguments
        return isinstance(value, Mapping) and all(_fits(k, key) and _fits(v, item) for k, v in value.items())
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    return not isinstance(hint, type) or isinstance(value, hint)  # a forward reference inside Nested is checked later


def _spell(hint: Any) -> str:
    origin, arguments = _parts(hint)
    if origin is Literal:
        return ", ".join(map(repr, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(map(_spell, arguments))
    if origin is tuple:
        return f"a tuple of {_spell(arguments[0])}" if arguments else "a tuple"
    if origin is Callable:
        return "a function"
    if origin is not None:
        return f"a dict from {_spell(arguments[0])} to {_spell(arguments[1])}"
    return "nothing (None)" if hint is type(None) else getattr(hint, "__name__", str(hint))


def _nearest(value: object, hint: Any) -> str:
    literals = re.findall(r"'(\w+)'", _spell(hint))
    return next((near for t in _texts(value) if t not in literals and (near := did_you_mean(t, literals))), "")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, Mapping):
        yield from _texts((*value, *value.values()))
