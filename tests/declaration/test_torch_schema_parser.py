"""Torch schemas, parsed without torch. test_torch_schema_torch.py compares the parser with torch's own."""

from __future__ import annotations

import pytest

from opmatrix.declaration.torch_schema_parser import Word, parse
from opmatrix.errors import UsageError


def test_every_part_is_read() -> None:
    schema = parse(
        " my::op.over( Tensor(a!) x, Tensor?[] y, int[2] size=1, *, str mode='a\"b', float eps=-1e-05 )->Tensor "
    )
    assert (schema.qualified, schema.overload) == ("my::op", "over")
    x, y, size, mode, eps = schema.arguments
    assert (x.type.name, x.type.alias, x.name) == ("Tensor", "a!", "x")
    assert (y.type.name, y.type.element) == ("Tensor?[]", "Tensor")
    assert (size.type.name, size.default, size.keyword) == ("int[2]", (1, 1), False)
    assert (mode.default, mode.keyword, eps.default) == ('a"b', True, -1e-5)
    assert [r.type.name for r in schema.results] == ["Tensor"]


@pytest.mark.parametrize(
    ("default", "value"),
    [
        ("None", None), ("True", True), ("3", 3), ("-2", -2), ("0.5", 0.5), ("1.", 1.0), ("[]", ()), ("[1, 2]", (1, 2)),
        ("[0.5]", (0.5,)), ('"text"', "text"), ("contiguous_format", Word("contiguous_format")), ("[True]", (True,)),
    ],
)  # fmt: skip
def test_defaults_are_read(default: str, value: object) -> None:
    found = parse(f"my::op(Tensor x, Any a={default}) -> Tensor").arguments[1]
    assert found.has_default and found.default == value and type(found.default) is type(value)


@pytest.mark.parametrize(
    ("results", "found"),
    [
        ("Tensor", [("Tensor", "")]), ("(Tensor, Tensor)", [("Tensor", ""), ("Tensor", "")]), ("()", []),
        ("(Tensor y, Tensor(a) z)", [("Tensor", "y"), ("Tensor", "z")]), ("Tensor[]", [("Tensor[]", "")]),
        ("Dict(str, Tensor)", [("Dict(str, Tensor)", "")]),
        ("(Tensor, (int, int))", [("Tensor", ""), ("(int, int)", "")]),
    ],
)  # fmt: skip
def test_results_are_read(results: str, found: list[tuple[str, str]]) -> None:
    assert [(r.type.name, r.name) for r in parse(f"my::op(Tensor x) -> {results}").results] == found


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 0, "the schema is empty"),
        ("my::op", 7, "found the end, expected '(': the arguments"),
        ("my::(Tensor x) -> Tensor", 5, "found '(', expected the operator's name behind its namespace"),
        ("my::op(Tensor x)", 17, "expected '->': the results, such as '-> Tensor'"),
        ("my::op(Tensor) -> Tensor", 14, "found ')', expected the name of the argument of type Tensor"),
        ("my::op(x: Tensor) -> Tensor", 9, "the type comes first, without a colon: 'Tensor x'"),
        ("my::op(Tensor x Tensor y) -> Tensor", 17, "Arguments stand behind each other with a comma"),
        ("my::op(Tensor x, float a=) -> Tensor", 26, "expected a default: a number, a text in quotes"),
        ("my::op(Tensor x, int a=1, int b) -> Tensor", 31, "'b' has no default, but the argument before it has one"),
        ("my::op(Tensor x) -> Tensor; rm", 27, "expected nothing behind the results"),
        ("my::op(Tensor[ x) -> Tensor", 16, "expected ']': the end of a list's type"),
        ("my::op(int a=[1, 2) -> Tensor", 19, "expected ',': a further item, or ']'"),
    ],
)
def test_an_error_shows_its_position(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    found = str(raised.value)
    assert message in found
    if column:
        _, shown, place = found.split("\n")
        assert shown == f"  {text}"
        assert place.index("^") - 2 == column - 1 and f"column {column}:" in place
