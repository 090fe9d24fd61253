"""The parser of torch schemas reads every schema of torch as torch does."""

from __future__ import annotations

import re
from typing import Any

import pytest

from opmatrix.declaration import torch_schema_parser
from opmatrix.declaration.torch_schema_parser import Parameter
from opmatrix.errors import UsageError
from tests.scaffold.test_from_torch_schema import REFUSED
from tests.support.torch_schemas import SCHEMAS

pytestmark = pytest.mark.torch

# How torch prints a type after it has parsed it.
_SPELLED = {
    "Scalar": "number",
    "ScalarType": "int",
    "Layout": "int",
    "MemoryFormat": "int",
    "SymInt": "int",
    "SymBool": "bool",
}


def spelled(name: str) -> str:
    """Return a type as torch prints it: ``List[Optional[Tensor]]`` for ``Tensor?[]``."""
    if name.endswith("?"):
        return f"Optional[{spelled(name[:-1])}]"
    if name.endswith("]"):
        return f"List[{spelled(name.rpartition('[')[0])}]"
    return _SPELLED.get(name, name)


def plain(value: object) -> object:
    return tuple(map(plain, value)) if isinstance(value, list | tuple) else value


def compared(ours: Parameter) -> bool:
    """Return whether torch prints the type in one way only."""
    return (
        re.fullmatch(r"(Tensor|int|float|bool|str|Scalar|SymInt|ScalarType)(\?|\[\d*\])*", ours.type.name) is not None
    )


def test_every_schema_of_torch_is_read_as_torch_reads_it(torch: Any) -> None:
    schemas = [str(s) for s in torch._C._jit_get_all_schemas()]
    assert len(schemas) > 2000
    types = 0
    for text in schemas:
        ours = torch_schema_parser.parse(text)
        try:
            theirs = torch._C.parse_schema(text)
        except RuntimeError:  # torch does not parse every schema that it prints
            continue
        assert (f"{ours.namespace}::{ours.name}", ours.overload) == (theirs.name, theirs.overload_name)
        assert len(ours.arguments) == len(theirs.arguments), text
        for mine, argument in zip(ours.arguments, theirs.arguments, strict=True):
            found = (mine.name, mine.keyword, mine.has_default, "!" in mine.type.alias)
            written = argument.alias_info is not None and argument.alias_info.is_write
            assert found == (argument.name, argument.kwarg_only, argument.has_default_value(), written), text
            if mine.has_default and not isinstance(mine.default, torch_schema_parser.Word):
                assert plain(argument.default_value) == mine.default, text
            if compared(mine):
                types += 1
                assert spelled(mine.type.name) == str(argument.type), text
        assert len(ours.results) == len(theirs.returns), text
    assert types > 5000


@pytest.mark.parametrize("text", [*SCHEMAS, *(schema for schema, _, _ in REFUSED)])
def test_torch_parses_schemas_that_are_refused_for_their_meaning(text: str, torch: Any) -> None:
    """Except tuples, unknown type names, and defaults of `str[]`."""
    ours = torch_schema_parser.parse(text)
    if any(a.type.name.startswith("Tuple") for a in ours.arguments):
        with pytest.raises(RuntimeError, match="unknown type specifier"):
            torch._C.parse_schema(text)
        return
    if {a.type.element for a in ours.arguments} & {"tensor", "double", "string", "flaot"}:
        return
    if any(a.type.name == "str[]" and a.has_default for a in ours.arguments):
        with pytest.raises(RuntimeError, match="lists are only supported for float, int and complex types"):
            torch._C.parse_schema(text)
        return
    theirs = torch._C.parse_schema(text)
    assert [a.name for a in ours.arguments] == [a.name for a in theirs.arguments]


@pytest.mark.parametrize(
    "text",
    [
        "my::op", "my::op(Tensor x)", "my::op(Tensor) -> Tensor", "my::op(x: Tensor) -> Tensor",
        "my::op(Tensor x -> Tensor",
        "my::op(Tensor x Tensor y) -> Tensor", "my::op(int a=) -> Tensor", "my::op(int a=[1, 2) -> Tensor",
        "my::op(Tensor x) -> Tensor; rm", "my::op(int[ x) -> Tensor", "my::(Tensor x) -> Tensor",
        "::op(Tensor x) -> Tensor",
        "my::op(Tensor x,, int y) -> Tensor", "my::op(Tensor(a! x) -> Tensor", "my::op(int a='x) -> Tensor",
    ],
)  # fmt: skip
def test_both_parsers_refuse_invalid_schemas(text: str, torch: Any) -> None:
    with pytest.raises(UsageError):
        torch_schema_parser.parse(text)
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(text)
