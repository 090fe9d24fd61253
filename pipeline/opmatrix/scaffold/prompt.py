"""The options of `doit new`, their check, and the questions that ask for missing ones in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from opmatrix.errors import UsageError, printable
from opmatrix.scaffold.draft import Draft, domain_owner
from opmatrix.scaffold.from_torch_schema import from_schema

EXAMPLE = "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor"
_GIVE = (
    f"give --schema '{EXAMPLE}' --domain my.domain, or --override aten::name --domain my.domain, or --from-onnx "
    f"model.onnx; in a terminal, `doit new` alone asks"
)
INTRODUCTION = "A new operator. Enter takes the value in brackets; Ctrl-C stops, and nothing is written."


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `doit new`; "" means not given."""

    schema: str = ""
    domain: str = ""
    name: str = ""
    op_type: str = ""
    override: str = ""
    from_onnx: str = ""

    def draft(self) -> Draft:
        """Return the operator with this schema."""
        return from_schema(self.schema, domain=self.domain, name=self.name, op_type=self.op_type)


def check(request: Request) -> None:
    """Raise UsageError for options that are missing or do not go together."""
    if not (request.schema or request.override or request.from_onnx):
        raise UsageError(f"describe the operator: {_GIVE}")
    if request.override and (request.schema or request.from_onnx):
        other = "--schema" if request.schema else "--from-onnx"
        raise UsageError(f"--override takes the schema that the installed torch has: leave out {other}")
    if request.from_onnx and request.domain:
        raise UsageError(f"--domain {request.domain}: the domain is in the model; leave it out")
    if not request.from_onnx and not request.domain:
        raise UsageError("--domain is missing: the ONNX domain that the operator's node is in, such as my.domain")
    if request.domain and (owner := domain_owner(request.domain)):
        raise UsageError(
            f"--domain {request.domain}: it is {owner}'s own, and an operator there would take the place of one of "
            f"theirs in silence; write one that you own, such as my.domain"
        )


def complete(request: Request) -> Request:
    """Ask for missing options, again if invalid. Ctrl-C raises KeyboardInterrupt, the end of input EOFError."""
    asked = not (request.schema or request.override or request.from_onnx)
    if asked:
        print(INTRODUCTION)
        schema = _ask("torch schema", f"such as {EXAMPLE}", default="", check=_names)
        request = replace(request, schema=schema)
    if request.from_onnx:
        return request
    if not request.domain:
        default = "" if request.override else _names(request.schema)[0]
        request = _ask_field(request, "domain", "ONNX domain", default)
    if asked and not request.name:
        request = _ask_field(request, "name", "name of its folder and its kernel", _names(request.schema)[1])
    if asked and not request.op_type:
        request = _ask_field(request, "op_type", "name of its node in ONNX", request.draft().spec.onnx.op_type)
    return request


def _ask_field(request: Request, field: str, question: str, default: str) -> Request:
    def check_answer(answer: str) -> None:
        changed = replace(request, **{field: answer})
        check(changed)
        if changed.schema:
            changed.draft()

    return replace(request, **{field: _ask(question, "", default=default, check=check_answer)})


def _names(schema: str) -> tuple[str, str]:
    """Return the default domain and name of an operator: the namespace and the name in its schema."""
    spec = from_schema(schema, domain="any.domain").spec
    assert spec.torch is not None
    return spec.torch.name.partition("::")[0], spec.name


def _ask(question: str, hint: str, *, default: str, check: Callable[[str], object]) -> str:
    if hint:
        print(f"{question}, {hint}")
    while True:
        answer = input("> " if hint else f"{question} [{default}]: " if default else f"{question}: ").strip() or default
        try:
            if not answer:
                raise UsageError(f"the {question} is needed")
            check(answer)
        except UsageError as error:
            print(printable(str(error)))
        else:
            return answer
