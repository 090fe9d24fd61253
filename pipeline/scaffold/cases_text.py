"""The text of a draft's cases.py, laid out as ruff would. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline.scaffold import python_text
from pipeline.scaffold.draft import SHAPE, Draft, is_required
from pipeline.scaffold.python_text import bracket
from pipeline.source import WIDTH, literal, source
from pipeline.spec import AttributeValue


def render(draft: Draft) -> dict[str, object]:
    """Return what the template of cases.py is filled with."""
    generic = bool(draft.spec.types)
    whole, special = python_text.has_whole(draft.spec), python_text.special(draft)
    head = ["*shape: int", 'layout: Layout = "contiguous"']
    head += ["special: bool = False"] if special else []
    head += ["whole: bool = True"] if whole else []
    models = [_model(draft, "static", 0), *([] if draft.aten and not draft.formula else [_model(draft, "dynamic", 1)])]
    names = [name for name, _ in models]
    seen = "" if draft.seen is None else f"SEEN = {source(draft.seen)}"
    return {
        "special": special,
        "whole": whole,
        "imports": bracket("from pipeline.spec import ", _imports(generic, seen), ""),
        "inputs_head": bracket("def inputs(", head, ") -> Inputs:"),
        "inputs_body": "    " + bracket("return {", python_text.case_inputs(draft), "}", indent=4),
        "models": [text for _, text in models],
        "seen": seen,
        "collected": _collected(draft, names, seen=bool(seen)),
    }


def _imports(generic: bool, seen: str) -> list[str]:
    names = {"Case", "Layout", "Model", "Random", "Tensor"} | ({"DType"} if generic else set())
    return sorted(names | ({"Values"} if "Values(" in seen else set()))


def _collected(draft: Draft, names: Sequence[str], *, seen: bool) -> str:
    more = ["SEEN"] if seen else []
    if not draft.spec.types:
        return f"MODELS = ({', '.join([n.upper() for n in names] + more)}{',' * (len(names) + len(more) == 1)})"
    (dtypes,) = draft.spec.types.values()
    made = f"make(dtype) for make in ({', '.join(names)}{',' * (len(names) == 1)}) for dtype in {literal(dtypes)}"
    return f"MODELS = (*({made}), {', '.join(more)})" if more else f"MODELS = tuple({made})"


def _model(draft: Draft, name: str, index: int) -> tuple[str, str]:
    """Return the name of a model, and the text that makes it: a function of the dtype where there are several."""
    spec = draft.spec
    generic = bool(spec.types)
    margin = "    " if generic else ""
    fields = [f"name={_named(name, generic)}"]
    fields += [f'types={{"{variable}": dtype}}' for variable in spec.types]
    if values := python_text.values(draft, index):
        fields.append(f"attributes={_mapping(values, len(margin) + 4)}")
    if index:
        dynamic = {i.name: ("N", "M") for i in spec.inputs if is_required(i)}
        fields.append(f"dynamic={_mapping(dynamic, len(margin) + 4)}")
    rows = "".join(f"        {case},\n" for case in (_dynamic(draft) if index else _static(draft)))
    fields.append(f"cases=(\n{rows}    )")
    body = "".join(f"    {field},\n" for field in fields)
    text = f"Model(\n{body})"
    if not generic:
        return name, f"{name.upper()} = {text}"
    indented = "\n".join(f"    {line}" if line else line for line in f"return {text}".split("\n"))
    return name, f"def {name}(dtype: DType) -> Model:\n{indented}"


def _mapping(values: Mapping[str, AttributeValue], indent: int) -> str:
    """Return a dict as a field of a model whose lines stand at `indent` once all of it is in its place."""
    line = literal(values)
    if indent + len("attributes=") + len(line) + 1 <= WIDTH:
        return line
    return "{\n" + "".join(f"        {literal(k)}: {literal(v)},\n" for k, v in values.items()) + "    }"


def _static(draft: Draft) -> list[str]:
    shape = ", ".join(map(str, draft.examples.get(draft.first.name, SHAPE)))
    generic = bool(draft.spec.types)
    cases = [("plain", ""), ("transposed", ', layout="transposed"'), ("sliced", ', layout="sliced"')]
    cases += [("special", ", special=True")] if python_text.special(draft) else []
    return [f"Case(name={_named(name, generic)}, inputs=inputs({shape}{more}))" for name, more in cases]


def _dynamic(draft: Draft) -> list[str]:
    generic = bool(draft.spec.types)
    whole = ", whole=False" if python_text.has_whole(draft.spec) else ""
    cases = [("exported", "2, 5"), ("empty", "0, 3"), ("one_element", "1, 1"), ("odd_sizes", "13, 47")]
    return [f"Case(name={_named(name, generic)}, inputs=inputs({shape}{whole}))" for name, shape in cases]


def _named(name: str, generic: bool) -> str:
    return f'f"{name}_{{dtype}}"' if generic else f'"{name}"'
