"""The parser of torch schemas reads every schema of torch as torch does."""

from __future__ import annotations

import builtins
import keyword
import re
from contextlib import suppress
from typing import Any

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.signature import parser
from opmatrix.signature.parser import Parameter
from tests.scaffold.test_from_torch_schema import REFUSED
from tests.support.torch_schemas import SCHEMAS

pytestmark = pytest.mark.torch

# How torch prints a type after it has parsed it.
_SPELLED = dict.fromkeys(("ScalarType", "Layout", "MemoryFormat", "SymInt"), "int")
_SPELLED |= {"Scalar": "number", "SymBool": "bool"}


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
    types = "Tensor|int|float|bool|str|Scalar|SymInt|ScalarType"
    return re.fullmatch(rf"({types})(\?|\[\d*\])*", ours.type.name) is not None


def test_every_schema_of_torch_is_read_as_torch_reads_it(torch: Any) -> None:
    schemas = [str(s) for s in torch._C._jit_get_all_schemas()]
    assert len(schemas) > 2000
    types = 0
    for text in schemas:
        try:
            theirs = torch._C.parse_schema(text)
        except RuntimeError:  # torch does not parse every schema that it prints
            continue
        ours = parser.parse(text)
        assert (f"{ours.namespace}::{ours.name}", ours.overload) == (theirs.name, theirs.overload_name)
        assert len(ours.arguments) == len(theirs.arguments), text
        for mine, argument in zip(ours.arguments, theirs.arguments, strict=True):
            found = (mine.name, mine.keyword, mine.has_default, "!" in mine.type.alias)
            written = argument.alias_info is not None and argument.alias_info.is_write
            assert found == (argument.name, argument.kwarg_only, argument.has_default_value(), written), text
            if mine.has_default and not isinstance(mine.default, parser.Word):
                assert plain(argument.default_value) == mine.default, text
            if compared(mine):
                types += 1
                assert spelled(mine.type.name) == str(argument.type), text
        assert len(ours.results) == len(theirs.returns), text
    assert types > 5000


@pytest.mark.parametrize("text", [*SCHEMAS, *(schema for schema, _, _ in REFUSED)])
def test_torch_parses_schemas_that_are_refused_for_their_meaning(text: str, torch: Any) -> None:
    """Except tuples, unknown type names, and defaults of `str[]`."""
    ours = parser.parse(text)
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
        parser.parse(text)
    with pytest.raises(RuntimeError):
        torch._C.parse_schema(text)


WORDS = sorted({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), "self", "out", "exec", "elif", "lambda", "Mean"})


@pytest.mark.parametrize(
    "schema",
    [
        "my::f(Tensor x, int {}) -> Tensor", "my::{}(Tensor x) -> Tensor", "{}::f(Tensor x) -> Tensor",
        "my::f.{}(Tensor x) -> Tensor", "my::f(Tensor x) -> Tensor {}",
    ],
)  # fmt: skip
def test_both_parsers_take_the_same_words_as_names(schema: str, torch: Any) -> None:
    taken: list[list[str]] = []
    for parse in (parser.parse, torch._C.parse_schema):
        taken.append([])
        for word in WORDS:
            with suppress(UsageError, RuntimeError):
                parse(schema.format(word))
                taken[-1].append(word)
    assert taken[0] == taken[1]


@pytest.mark.parametrize(
    "argument",
    [
        "int n=-9223372036854775808", "int n=9223372036854775807", "int n=9223372036854775808", "float n=inf",
        "float n=-inf", "float n=nan", "float n=1e400", "float n=1e308", "float n=5e-324", "float n=2.3e-308",
        "float n=2.2e-308", "float n=0e-999", "float n=.5", "float n=5.", "float n=+1", "int n=-0", "float n=-0.0",
        "float n=99999999999999999999", "float[] n=[1e-320]", "int[] n=[99999999999999999999]", "int n=foo",
        "str s='??='", "str s='\\n\\t\\a\\b\\f\\v'", "str s='\\r'", "str s='\\x41'", "str s='\\u00e9'",
        "str s='\u00e9'", "str s='\\123'", "str s='\\12'", "str s='\\0'", "str s='a  b'", "str s='\\e'", "str s='a#b'",
        "bool b=true",
    ],
)  # fmt: skip
def test_both_parsers_read_the_same_defaults(argument: str, torch: Any) -> None:
    text = f"my::f(Tensor x, {argument}) -> Tensor"
    try:
        theirs = torch._C.parse_schema(text).arguments[1].default_value
    except (RuntimeError, ValueError, IndexError):
        with pytest.raises(UsageError):
            parser.parse(text)
        return
    ours = parser.parse(text).arguments[1].default
    assert (float(ours) if isinstance(theirs, float) else ours) == plain(theirs)  # type: ignore[arg-type]  # a number


def test_every_name_that_torch_ops_has_itself_is_refused(torch: Any) -> None:
    library = torch.library.Library("opmatrix_of_ops", "DEF")
    library.define("one.some(Tensor x) -> Tensor")
    namespace = torch.ops.opmatrix_of_ops
    operators = (type(namespace), type(namespace.one), type(namespace.one.some))
    for part, owner in (("namespace", torch.ops), ("name", namespace), ("overload", namespace.one)):
        found = {name for name in {*object.__dir__(owner), *dir(type(owner))} if not name.startswith("__")}
        own = {name for name in found if not isinstance(getattr(owner, name, None), operators)}
        assert own and own <= {*parser.OWN_OF_OPS[part]}
