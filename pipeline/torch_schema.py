"""Read a torch schema, ``ns::name.overload(Tensor x, *, float eps=1e-05) -> Tensor``, without torch.

Grammar: "func" in ATen's native_functions README, and torch/csrc/jit/frontend/function_schema_parser.cpp. What is read
is what stands there: whether an operator can be declared so is for others to say, with `refuse`, at its place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from pipeline.errors import UsageError

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>::|->|\.\.\.|[()\[\].,*=?!|])
    |(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<other>\S))""",
    re.VERBOSE,
)

Value = None | bool | int | float | str | tuple["Value", ...]


class Word(str):
    """A default that is a name, such as ``contiguous_format``."""


@dataclass(frozen=True, kw_only=True)
class Type:
    """A type as it is written, without its alias: ``Tensor``, ``int[2]``, ``Tensor?[]``. `at` is where it begins."""

    name: str
    alias: str = ""  # "a!", "a", "a -> *"
    at: int = 0

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
    keyword: bool = False  # behind the star
    at: int = 0  # where its name stands


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
    """Raise UsageError with each reason below its place in `text`."""
    lines = [what, f"  {text}"]
    lines += [f"  {' ' * at}^ column {at + 1}: {reason}" for at, reason in sorted(places)]
    raise UsageError("\n".join(lines))


def parse(text: str) -> Schema:
    """Return what `text` says. Raises UsageError with the place of what cannot be read."""
    return _Parser(" ".join(text.split())).schema()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        found = ((m.lastgroup or "other", m) for m in _TOKEN.finditer(text))
        self._tokens = [(kind, m[kind], m.start(kind)) for kind, m in found]
        self._tokens.append(("end", "", len(text)))
        self._next = 0

    def schema(self) -> Schema:
        if len(self._tokens) == 1:
            raise UsageError("the schema is empty; write one such as 'my::shift(Tensor x, float by=0.0) -> Tensor'")
        namespace, name = "", self._word("the operator's name, 'namespace::name'")
        if self._take("::"):
            namespace, name = name, self._word("the operator's name behind its namespace")
        overload = self._word("the overload's name") if self._take(".") else ""
        self._expect("(", "the arguments")
        arguments, more = self._parameters()
        self._expect("->", "the results, such as '-> Tensor'")
        results_at = self._at
        results, more_results = self._results()
        if self._kind != "end":
            self._fail("nothing behind the results")
        return Schema(
            text=self._text, namespace=namespace, name=name, overload=overload, arguments=arguments, results=results,
            results_at=results_at, more=more, more_results=more_results,
        )  # fmt: skip

    def _parameters(self) -> tuple[tuple[Parameter, ...], bool]:
        """Read up to and with the closing bracket; the opening one is read."""
        found: list[Parameter] = []
        keyword = False
        while not self._take(")"):
            if found or keyword:
                self._expect(",", "a further argument, or ')'")
            if self._take("..."):
                self._expect(")", "the end of the arguments")
                return tuple(found), True
            if not keyword and self._take("*"):
                keyword = True
                continue
            found.append(self._argument(keyword, after=found[-1] if found else None))
        return tuple(found), False

    def _argument(self, keyword: bool, *, after: Parameter | None) -> Parameter:
        type_ = self._type()
        at = self._at
        name = self._word(f"the name of the argument of type {type_.name}")
        given = self._take("=")
        default = self._value() if given else None
        if given and re.fullmatch(r".*\[\d+\]", type_.name) and not isinstance(default, tuple | None):
            default = (default,) * int(type_.name.rpartition("[")[2][:-1])
        if not given and not keyword and after and after.has_default and not after.keyword:
            refuse("the schema cannot be read:", self._text, [
                (at, f"{name!r} has no default, but the argument before it has one; give it one, or move it ahead")
            ])  # fmt: skip
        return Parameter(type=type_, name=name, default=default, has_default=given, keyword=keyword, at=at)

    def _results(self) -> tuple[tuple[Parameter, ...], bool]:
        if self._take("..."):
            return (), True
        if not self._take("("):
            return (self._result(),), False
        found: list[Parameter] = []
        while not self._take(")"):
            if found:
                self._expect(",", "a further result, or ')'")
            if self._take("..."):
                self._expect(")", "the end of the results")
                return tuple(found), True
            found.append(self._result())
        return tuple(found), False

    def _result(self) -> Parameter:
        type_, at = self._type(), self._at
        return Parameter(type=type_, name=self._word("a name") if self._kind == "word" else "", at=at)

    def _type(self) -> Type:
        at = self._at
        name, alias = self._base(), ""
        while True:
            if self._text[self._at : self._at + 1] == "(" and not alias and self._take("("):
                alias = self._alias()
            elif self._take("?"):
                name += "?"
            elif self._take("["):
                name += f"[{self._take_number()}]"
                self._expect("]", "the end of a list's type")
            else:
                return Type(name=name, alias=alias, at=at)

    def _base(self) -> str:
        if self._take("("):
            return f"({', '.join(self._types())})"
        name = self._word("a type, such as Tensor")
        while self._take("."):
            name += "." + self._word("the rest of a type's name")
        if name in ("Dict", "Tuple", "Future", "RRef", "Union", "Await") and self._take("("):
            name += f"({', '.join(self._types())})"
        return name

    def _types(self) -> list[str]:
        found = [self._type().name]
        while self._take(","):
            found.append(self._type().name)
        self._expect(")", "the end of a type")
        return found

    def _alias(self) -> str:
        """Read up to and with the closing bracket: ``a!``, ``a|b``, ``a -> *``."""
        start = self._at
        while self._kind in ("word", "mark") and self._token not in "(),=":
            self._next += 1
        found = self._text[start : self._at].strip()
        self._expect(")", "the end of an alias such as (a!)")
        return found

    def _value(self) -> Value:
        kind, token = self._kind, self._token
        if self._take("["):
            items: list[Value] = []
            while not self._take("]"):
                if items:
                    self._expect(",", "a further item, or ']'")
                items.append(self._value())
            return tuple(items)
        if kind not in ("number", "text", "word"):
            self._fail("a default: a number, a text in quotes, True, False, None or a list of them")
        self._next += 1
        named: dict[str, Value] = {"None": None, "True": True, "False": False, "true": True, "false": False}
        if kind == "word":
            return named.get(token, Word(token))
        found: Value = ast.literal_eval(token.lstrip("+") if kind == "number" else token)
        return found

    def _take_number(self) -> str:
        if self._kind != "number":
            return ""
        self._next += 1
        return self._tokens[self._next - 1][1]

    @property
    def _kind(self) -> str:
        return self._tokens[self._next][0]

    @property
    def _token(self) -> str:
        return self._tokens[self._next][1]

    @property
    def _at(self) -> int:
        return self._tokens[self._next][2]

    def _take(self, mark: str) -> bool:
        taken = self._kind == "mark" and self._token == mark
        self._next += taken
        return taken

    def _expect(self, mark: str, of: str) -> None:
        if not self._take(mark):
            self._fail(f"{mark!r}: {of}")

    def _word(self, what: str) -> str:
        if self._kind != "word":
            self._fail(what)
        self._next += 1
        return self._tokens[self._next - 1][1]

    def _fail(self, expected: str) -> NoReturn:
        found = repr(self._token) if self._token else "the end"
        hint = ""
        if self._token == ":":
            hint = ". In a schema the type comes first, without a colon: 'Tensor x'"
        elif self._kind in ("word", "number") and self._next and self._tokens[self._next - 1][0] == "word":
            hint = ". Arguments stand behind each other with a comma, as 'Tensor x, float eps'"
        refuse("the schema cannot be read:", self._text, [(self._at, f"found {found}, expected {expected}{hint}")])
