"""What `doit new` is asked for, and the questions in a terminal. Ctrl-C and the end of input are the caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from opmatrix.errors import UsageError
from opmatrix.scaffold import from_torch_schema

EXAMPLE = "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor"
INTRODUCTION = "A new operator. Enter takes what stands in brackets; Ctrl-C stops, and nothing is written."


@dataclass(frozen=True, kw_only=True)
class Request:
    """The options of `doit new`; "" is one that was not given."""

    schema: str = ""
    domain: str = ""
    name: str = ""
    op_type: str = ""
    override: str = ""
    from_onnx: str = ""


def complete(request: Request, *, check: Callable[[Request], None]) -> Request:
    """Return the request with all that it lacks. `check` raises UsageError for what cannot be; that is asked again."""
    asked = not (request.schema or request.override or request.from_onnx)
    if asked:
        print(INTRODUCTION)
        schema = _ask("torch schema", f"such as {EXAMPLE}", default="", check=_names)
        request = replace(request, schema=schema)
    if request.from_onnx:
        return request
    if not request.domain:
        default = "" if request.override else _names(request.schema)[0]
        request = _field(request, "domain", "ONNX domain", default, check)
    if asked and not request.name:
        request = _field(request, "name", "name of its folder and its kernel", _names(request.schema)[1], check)
    if asked and not request.op_type:
        draft = from_torch_schema.from_schema(request.schema, domain=request.domain, name=request.name)
        request = _field(request, "op_type", "name of its node in ONNX", draft.spec.onnx.op_type, check)
    return request


def _field(request: Request, field: str, question: str, default: str, check: Callable[[Request], None]) -> Request:
    answer = _ask(question, "", default=default, check=lambda text: check(replace(request, **{field: text})))
    return replace(request, **{field: answer})


def _names(schema: str) -> tuple[str, str]:
    """Return the domain and the name that follow from a schema: its namespace, and its name."""
    spec = from_torch_schema.from_schema(schema, domain="any.domain").spec
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
            print(error)
        else:
            return answer
