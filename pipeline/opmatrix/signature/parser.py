"""Read a torch schema, ``ns::name.overload(Tensor x, *, float eps=1e-05) -> Tensor``, without torch.

Grammar: "func" in ATen's native_functions README, and torch/csrc/jit/frontend/function_schema_parser.cpp. The parser
accepts every schema; callers reject what cannot be declared, with `refuse`, which shows the position.
"""

from __future__ import annotations

import ast
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, NoReturn, TypeVar

from opmatrix.basics.errors import UsageError

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>::|->|\.\.\.|[()\[\],*=?!|]|\.(?!\d))
    |(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<other>\S))""",
    re.VERBOSE | re.ASCII,
)
_STRING = r"""("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
# The words that torch's lexer takes for tokens of TorchScript (torch/csrc/jit/frontend/lexer.h), wherever they are.
WORDS_OF_TORCH = frozenset(
    """
    Ellipsis False None True and as assert break class continue def del elif else for global if import in is not or
    pass raise return while with
    """.split()  # noqa: SIM905 - as words they fit on two lines
)
# Attributes of torch.ops, torch.ops.NAMESPACE and torch.ops.NAMESPACE.NAME themselves, beside those with __.
OWN_OF_OPS = {
    "namespace": ("_dir", "_higher_order_op_namespace", "higher_order", "import_module", "load_library",
                  "loaded_libraries"),
    "name": ("_dir", "name"),
    "overload": ("_dir", "_has_torchbind_op_overload", "_is_protocol", "_op", "_overload_names", "_qualified_op_name",
                 "_schemas", "op", "op_overloads", "overloads"),
}  # fmt: skip
# What torch reads behind a backslash in a string: one of these, or three octal digits.
_ESCAPE = re.compile(r"""\\(?:[abfntv\\'"]|[01][0-7]{2})""")

# Of a letter that `Tensor!` gets, which is none in a schema.
WITHOUT_LETTER = "$"

# The types of values that are no objects of torch, whose names are other words.
_OF_VALUES = ("float", "int", "bool", "str", "Scalar", "SymInt")

T = TypeVar("T")
Value = None | bool | int | float | str | tuple["Value", ...]


class Word(str):
    """A default that is a name, such as ``contiguous_format``."""


@dataclass(frozen=True, kw_only=True)
class Type:
    """A type as it is written, without its alias: ``Tensor``, ``int[2]``, ``Tensor?[]``. `at` is its offset."""

    name: str
    alias: str = ""  # "a!", "a", "a -> *"; of `Tensor!`, one that no other type has
    at: int = 0

    @property
    def spelled(self) -> str:
        """The type with its alias: ``Tensor(a!)``, ``Tensor(a!)?``, ``Tensor!``."""
        alias = "!" if self.alias.startswith(WITHOUT_LETTER) else f"({self.alias})" if self.alias else ""
        return f"{self.element}{alias}{self.name[len(self.element) :]}"

    @property
    def element(self) -> str:
        """The type within the brackets and question marks."""
        return re.split(r"[?\[]", self.name, maxsplit=1)[0]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """An argument, or a result, which may have no name."""

    type: Type
    name: str
    default: Value = None
    has_default: bool = False
    keyword: bool = False  # after the star
    at: int = 0  # the offset of its name


@dataclass(frozen=True, kw_only=True)
class Schema:
    """A schema and its text. `namespace` is "" where none is given; `more` is whether ``...`` ends the arguments."""

    text: str
    namespace: str
    name: str
    overload: str
    arguments: tuple[Parameter, ...]
    results: tuple[Parameter, ...]
    results_at: int
    more: bool = False
    more_results: bool = False

    @property
    def qualified(self) -> str:
        return f"{self.namespace}::{self.name}"


def refuse(what: str, text: str, places: Iterable[tuple[int, str]]) -> NoReturn:
    """Raise UsageError with each reason below its position in `text`; of a long schema, only the part around it."""
    found = sorted(places)
    lines = [what] if len(text) > _LONG else [what, f"  {text}"]
    for at, reason in found[:_MOST]:
        start = max(0, at - _AROUND) if len(text) > _LONG else 0
        if len(text) > _LONG:
            lines.append(f"  {text[start : at + _AROUND]}")
        shown = reason if len(reason) < _LONG else f"{reason[:_AROUND]} [...] {reason[-2 * _AROUND :]}"
        lines.append(f"  {' ' * (at - start)}^ column {at + 1}: {shown}")
    lines += [f"  and {len(found) - _MOST} more"] if len(found) > _MOST else []
    raise UsageError("\n".join(lines))


# Limits of the message for a schema that is too long to print: characters, and mistakes.
_LONG, _AROUND, _MOST = 1000, 60, 20
# More than any schema of torch has: nested brackets, and items of a list with a default for each.
_DEEPEST, _LONGEST = 20, 1000


def length(kind: str) -> int | None:
    """Return the length of a list's type, 2 of ``int[2]``; None for any other type."""
    found = re.fullmatch(r".*\[(\d+)\]", kind)
    return int(found[1]) if found else None


def aliased(type_: Type) -> str:
    """Return why a type with an alias annotation cannot be declared."""
    if "!" in type_.alias:
        return (
            f"{type_.spelled} is written, and both exporters replace such an operator of torch by its "
            "functional one: override that one, which returns a new Tensor"
        )
    return f"{type_.spelled} is a view, and ONNX has none: leave out '({type_.alias})' and return a copy"


# What to declare in place of an argument that is written and may be absent, and of a result that may be absent.
WITHOUT_IT = "For calls without it, declare another overload, whose schema does not have the argument"
EMPTY_RESULT = (
    "Tensor? is a result that may be absent, allowed: Tensor, which is empty where there is none: "
    'Output(optional="flag"), with an attribute flag of kind bool'
)


def written_type(type_: Type) -> str:
    """Return why a written argument of another type than Tensor cannot be declared."""
    if type_.name == "Tensor?":
        return f"{type_.spelled} is written and may be absent, allowed: {type_.spelled.rstrip('?')}. {WITHOUT_IT}"
    return f"{type_.spelled} is written, allowed: an argument for each tensor, such as Tensor(a!)"


def no_argument(result: Type, schema: Schema) -> str:
    """Return why a result with an alias annotation that no argument has cannot be declared."""
    if result.alias.startswith(WITHOUT_LETTER):
        return f"{result.spelled} names no argument, allowed: Tensor(a!), the same at the argument that is returned"
    written = [a for a in schema.arguments if "!" in a.type.alias and not a.type.alias.startswith(WITHOUT_LETTER)]
    allowed = ", ".join(f"{a.type.spelled}, which is {a.name}" for a in written)
    return f"{result.spelled} is not an argument, allowed: {allowed or 'Tensor'}"


def why_not_in_ops(part: str, name: str) -> str:
    """Return why no operator can have a name as its "namespace", "name" or "overload", and "" if it can."""
    if name in OWN_OF_OPS[part] or name.startswith("__"):
        others = ", ".join(OWN_OF_OPS[part])
        return f"found the {part} {name!r}, allowed: one without '__' in front, and none of {others}: torch.ops has " \
            "attributes of its own with these names"  # fmt: skip
    return ""


def parse(text: str) -> Schema:
    """Parse a schema. Raises UsageError with the position of a syntax error."""
    pieces = re.split(_STRING, text)  # at odd places a string, which keeps its spaces
    spaced = [piece if n % 2 else re.sub(r"\s+", " ", piece) for n, piece in enumerate(pieces)]
    return _Parser("".join(spaced).strip()).schema()


class _Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        found = [(m.lastgroup or "other", m) for m in _TOKEN.finditer(text)]
        self._tokens = [*(_Token(kind, m[kind], m.start(kind)) for kind, m in found), _Token("end", "", len(text))]
        self._next = 0
        self._keyword = self._more = False  # whether a star, or three dots, came before
        self._depth = 0

    def schema(self) -> Schema:
        if len(self._tokens) == 1:
            raise UsageError("the schema is empty; write one such as 'my::shift(Tensor x, float by=0.0) -> Tensor'")
        namespace, name = "", self._word("the operator's name, 'namespace::name'")
        if self._take("::"):
            namespace, name = name, self._word("the operator's name behind its namespace")
        overload = ""
        if self._take("."):
            if self._token.text == "default" or self._token.text.startswith("__"):
                self._fail("the overload's name, which torch takes neither as 'default' nor with '__' in front")
            overload = self._word("the overload's name")
        self._expect("(", "the arguments")
        arguments = tuple(a for a in self._list(self._argument, ")", "argument") if a)
        for before, argument in pairwise(arguments):
            if before.has_default and not argument.has_default and not argument.keyword:
                why = "has no default, but the argument before it has one; give it one, or move it ahead"
                refuse("the schema cannot be read:", self._text, [(argument.at, f"{argument.name!r} {why}")])
        more, self._more = self._more, False
        self._expect("->", "the results, such as '-> Tensor'")
        results_at = self._token.at
        results = self._list(self._result, ")", "result") if self._take("(") else [self._result()]
        if self._token.kind != "end":
            self._fail("nothing behind the results")
        return Schema(
            text=self._text, namespace=namespace, name=name, overload=overload, arguments=arguments,
            results=tuple(r for r in results if r), results_at=results_at, more=more, more_results=self._more,
        )  # fmt: skip

    def _list(self, item: Callable[[], T], closing: str, what: str) -> list[T]:
        """Read up to and with the closing bracket; the opening one is read."""
        entries: list[T] = []
        self._depth += 1
        if self._depth > _DEEPEST:
            self._fail(f"at most {_DEEPEST} brackets within each other")
        while not self._take(closing):
            if self._more:
                self._fail(f"{closing!r}: nothing is behind '...'")
            if entries:
                self._expect(",", f"a further {what}, or {closing!r}")
            entries.append(item())
        self._depth -= 1
        return entries

    def _dots(self) -> bool:
        self._more = self._take("...")
        return self._more

    def _argument(self) -> Parameter | None:
        """Return an argument, or None for a star or three dots."""
        if not self._keyword and self._take("*"):
            self._keyword = True
            return None
        if self._dots():
            return None
        type_, at = self._type(), self._token.at
        name = self._word(f"the name of the argument of type {type_.name}")
        given = self._take("=")
        default = self._value(type_) if given else None
        if given and (length := re.fullmatch(r".*\[(\d+)\]", type_.name)) and not isinstance(default, tuple | None):
            if len(length[1]) > 4 or int(length[1]) > _LONGEST:
                why = f"has a default for each of {length[1][:20]} items, allowed: at most {_LONGEST}"
                refuse("the schema cannot be read:", self._text, [(at, f"{name!r} {why}")])
            default = (default,) * int(length[1])
        return Parameter(type=type_, name=name, default=default, has_default=given, keyword=self._keyword, at=at)

    def _result(self) -> Parameter | None:
        if self._dots():
            return None
        type_, at = self._type(), self._token.at
        return Parameter(type=type_, name=self._word("a name") if self._token.kind == "word" else "", at=at)

    def _type(self) -> Type:
        at = self._token.at
        name, alias = self._base(), ""
        while True:
            if not alias and self._take("("):
                alias = self._alias()
            elif self._take("?"):
                name += "?"
            elif self._take("["):
                name += f"[{self._word('a length', kind='number') if self._token.kind == 'number' else ''}]"
                self._expect("]", "the end of a list's type")
            elif not alias and self._take("!"):  # torch chooses a letter, another one for each
                alias = f"{WITHOUT_LETTER}{at}!"
            else:
                return Type(name=name, alias=alias, at=at)

    def _base(self) -> str:
        if self._take("("):
            return f"({self._types()})"
        name = self._word("a type, such as Tensor")
        while self._take("."):
            name += "." + self._word("the rest of a type's name")
        if name in ("Dict", "Tuple", "Future", "RRef", "Union", "Await") and self._take("("):
            name += f"({self._types()})"
        return name

    def _types(self) -> str:
        return ", ".join(t.name for t in self._list(self._type, ")", "type"))

    def _alias(self) -> str:
        """Read up to and with the closing bracket: ``a!``, ``a|b``, ``a -> *``."""
        start = self._token.at
        while self._token.kind in ("word", "mark") and self._token.text not in "(),=":
            self._next += 1
        alias = self._text[start : self._token.at].strip()
        self._expect(")", "the end of an alias such as (a!)")
        return alias

    def _value(self, of: Type) -> Value:
        """Return the default of an argument of a type, as torch reads it."""
        if self._take("["):
            return tuple(self._list(lambda: self._value(of), "]", "item"))
        kind, text, _ = self._token
        if kind == "number":
            default = self._number(text, of)
        elif kind == "text":
            default = self._string(text)
        elif kind == "word":
            named: dict[str, Value] = {"None": None, "True": True, "False": False}
            if of.element in _OF_VALUES and text not in named and text != "Mean":
                self._fail("a default that torch reads: a number in digits, a string in quotes, True, False, None or a "
                           "list of them")  # fmt: skip
            default = named.get(text, Word(text))
        else:
            self._fail("a default: a number, a string in quotes, True, False, None or a list of them")
        self._next += 1
        return default

    def _number(self, text: str, of: Type) -> Value:
        """Return a number that torch reads: by std::stod where the type is float or the number no int, else stoll."""
        if text.startswith("+"):
            self._fail("a number without '+', which torch does not read")
        whole = text.lstrip("-").isdigit()
        if of.element == "float" or not whole:
            value = float(text)
            lost = abs(value) < sys.float_info.min and re.match(r"[-.0]*[1-9]", text) is not None
            if lost or math.isinf(value):
                self._fail(f"a number that torch reads: 0, or {sys.float_info.min} to {sys.float_info.max}, or such a "
                           "negative one")  # fmt: skip
            return int(text) if whole else value
        if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
            self._fail("an int of 64 bits")
        return int(text)

    def _string(self, text: str) -> Value:
        rest = _ESCAPE.sub("", text)
        if "\\" in rest:
            self._fail("a string with the escapes that torch reads: a backslash before a, b, f, n, t, v, a quote, a "
                       "backslash, or three octal digits up to 177")  # fmt: skip
        if "\n" in rest or "\0" in (found := ast.literal_eval(text)):
            self._fail("a string in one line, and without a NUL, at which the text of a kernel ends")
        return str(found)

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, mark: str) -> bool:
        taken = self._token[:2] == ("mark", mark)
        self._next += taken
        return taken

    def _expect(self, mark: str, of: str) -> None:
        if not self._take(mark):
            self._fail(f"{mark!r}: {of}")

    def _word(self, what: str, *, kind: str = "word") -> str:
        if self._token.kind != kind:
            self._fail(what)
        if self._token.text in WORDS_OF_TORCH:
            self._fail(f"{what}; the word is a keyword of TorchScript, and torch reads it nowhere as a name. Rename it")
        self._next += 1
        return self._tokens[self._next - 1].text

    def _fail(self, expected: str) -> NoReturn:
        kind, text, at = self._token
        found = repr(text[:100]) if text else "the end"
        hint = ""
        if text == ":":
            hint = ". In a schema the type comes first, without a colon: 'Tensor x'"
        elif text == "(" and expected.startswith("a default"):
            hint = ". A schema has no tuples: write a list, [1, 2]"
        elif kind in ("word", "number") and self._next and self._tokens[self._next - 1].kind == "word":
            hint = ". Separate arguments with a comma, as 'Tensor x, float eps'"
        refuse("the schema cannot be read:", self._text, [(at, f"found {found}, expected {expected}{hint}")])
