"""Torch schemas, parsed without torch. test_torch_schema_torch.py compares the parser with torch's own."""

from __future__ import annotations

import cProfile

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.scaffold.from_torch_schema import from_schema
from opmatrix.signature.parser import Word, parse


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
        ("my::op(Tensor x Tensor y) -> Tensor", 17, "Separate arguments with a comma"),
        ("my::op(Tensor x, float a=) -> Tensor", 26, "expected a default: a number, a string in quotes"),
        ("my::op(Tensor x, int[] a=(1, 2)) -> Tensor", 26, "A schema has no tuples: write a list, [1, 2]"),
        ("my::op(Tensor x, int a=1, int b) -> Tensor", 31, "'b' has no default, but the argument before it has one"),
        ("my::op(Tensor x) -> Tensor; rm", 27, "expected nothing behind the results"),
        ("my::op(Tensor[ x) -> Tensor", 16, "expected ']': the end of a list's type"),
        ("my::op(int a=[1, 2) -> Tensor", 19, "expected ',': a further item, or ']'"),
        ("my::op(Tensor x, float a=+1) -> Tensor", 26, "found '+1', expected a number without '+'"),
        ("my::op(Tensor x, float a=inf) -> Tensor", 26,
         "found 'inf', expected a default that torch reads: a number in"),
        ("my::op(Tensor x, float[] a=[0, nan]) -> Tensor", 32, "found 'nan', expected a default that torch reads"),
        ("my::op(Tensor x, bool a=true) -> Tensor", 25, "found 'true', expected a default that torch reads"),
        ("my::op(Tensor x, float a=1e400) -> Tensor", 26,
         "found '1e400', expected a number that torch reads: 0, or 2.2"),
        ("my::op(Tensor x, float[] a=[5e-324]) -> Tensor", 29, "found '5e-324', expected a number that torch reads"),
        ("my::op(Tensor x, int a=9223372036854775808) -> Tensor", 24, "expected an int of 64 bits"),
        ("my::op(Tensor x, str a='\\x41') -> Tensor", 24, "expected a string with the escapes that torch reads: a "),
        ("my::op(Tensor x, str a='\\377') -> Tensor", 24, "or three octal digits up to 177"),
        ("my::op(Tensor x, str a='\\000') -> Tensor", 24, "expected a string in one line, and without a NUL, at which"),
        ("my::op(Tensor x, str a='b\nc') -> Tensor", 24, "expected a string in one line"),
        ("my::op(Tensor \u00e4) -> Tensor", 15, "found '\u00e4', expected the name of the argument of type Tensor"),
        ("my::op.default(Tensor x) -> Tensor", 8, "which torch takes neither as 'default' nor with '__' in front"),
    ],
)  # fmt: skip
def test_an_error_shows_its_position(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    found = str(raised.value)
    assert message in found
    if column:
        place = found.rpartition("\n")[2]
        assert f"  {text}\n" in found
        assert place.index("^") - 2 == column - 1 and f"column {column}:" in place


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"my::f(Tensor x, int[] y={'[' * 60_000}{']' * 60_000}) -> Tensor",
         "expected at most 20 brackets within each"),
        (f"my::f({'(' * 120_000}Tensor x) -> Tensor", "expected at most 20 brackets within each other"),
        (f"my::f({'Tuple(' * 20_000}Tensor x) -> Tensor", "expected at most 20 brackets within each other"),
        (f"{'[' * 120_000}", "^ column 1: found '[', expected the operator's name"),
        ("my::f(Tensor x, int[99999999999] y=1) -> Tensor",
         "a default for each of 99999999999 items, allowed: at most"),
        (f"my::f(Tensor x, int y={'9' * 5000}) -> Tensor", "expected an int of 64 bits"),
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_a_schema_without_end_is_refused_in_a_few_lines(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert message in str(caught.value) and len(str(caught.value)) < 500


def test_a_type_of_120_000_characters_is_shown_short() -> None:
    with pytest.raises(UsageError) as caught:
        from_schema(f"my::f(Tensor x, int{'[]' * 60_000} y, int{'[]' * 60_000} z) -> Tensor", domain="my.domain")
    assert str(caught.value).count("a type that can be declared, allowed: ") == 2
    assert len(str(caught.value)) < 1000


def test_the_calls_for_a_draft_do_not_grow_as_the_cube_of_its_tensors() -> None:
    """They did: 5 s for 300 tensors."""

    def calls(number: int) -> int:
        tensors = ", ".join(f"Tensor x{n}" for n in range(number))
        profile = cProfile.Profile()
        drafted = profile.runcall(from_schema, f"my::f({tensors}) -> Tensor", domain="my.domain")
        assert len(drafted.spec.inputs) == number
        return sum(entry.callcount for entry in profile.getstats())

    calls(1)  # what is imported and cached once
    assert calls(160) < 5 * calls(80)  # 8 times, as the cube


def test_a_written_type_without_a_letter_is_another_one_at_each_argument() -> None:
    one, other = (a.type for a in parse("my::op(Tensor! x, Tensor!? y, Tensor z) -> ()").arguments[:2])
    assert one.alias.endswith("!")
    assert one.alias != other.alias
    assert [(t.name, t.spelled) for t in (one, other)] == [("Tensor", "Tensor!"), ("Tensor?", "Tensor!?")]


# At 71b51ad8: each was accepted.
KEPT = [
    ("my::k1(Tensor x, int for) -> Tensor", 22, "for"),  # these five are handed examples of issue 33
    ("my::k3(Tensor x, int None) -> Tensor", 22, "None"),
    ("my::k8(Tensor class) -> Tensor", 15, "class"),
    ("my::k13(Tensor x, int not) -> Tensor", 23, "not"),
    ("my::k14(Tensor x, int is) -> Tensor", 23, "is"),
    ("my::in(Tensor x) -> Tensor", 5, "in"),
    ("with::f(Tensor x) -> Tensor", 1, "with"),
    ("my::f.as(Tensor x) -> Tensor", 7, "as"),
    ("my::f(Tensor x) -> Tensor pass", 27, "pass"),
    ("my::f(Tensor x) -> (Tensor y, Tensor True)", 38, "True"),
    ("my::f(Tensor x, *, int while=1) -> Tensor", 24, "while"),
    ("my::f(Tensor x, def n) -> Tensor", 17, "def"),
]


@pytest.mark.parametrize(("text", "column", "word"), KEPT)
def test_a_word_that_torch_keeps_is_no_name(text: str, column: int, word: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse(text)
    place = str(raised.value).rpartition("\n")[2]
    assert f"^ column {column}: found {word!r}, expected " in place
    assert "the word is a keyword of TorchScript, and torch reads it nowhere as a name. Rename it" in place


def test_a_string_keeps_its_spaces_and_escapes() -> None:
    text = "my::op(Tensor  x,\n str a='two  spaces', str b='\\n\\001\\'\\\\', str c=\"??/\")\n -> Tensor"
    assert [a.default for a in parse(text).arguments[1:]] == ["two  spaces", "\n\x01'\\", "??/"]
