"""Pieces of Python text, laid out as ruff would, of a draft's spec.py, cases.py and reference.py. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.glue import python
from pipeline.scaffold.draft import VALUES, Draft, is_required
from pipeline.source import WIDTH, literal, source
from pipeline.spec import Attribute, AttributeValue, Input, OpSpec, SameAs

_TYPES: Mapping[str, str] = {
    "float": "float", "int": "int", "bool": "bool", "string": "str", "floats": "tuple[float, ...]",
    "ints": "tuple[int, ...]",
}  # fmt: skip


def bracket(opening: str, parts: Iterable[str], closing: str = ")", *, indent: int = 0) -> str:
    """Return ``opening(parts)closing``: on one line where it fits behind `indent`, else one part a line."""
    return python.bracket(indent, opening, parts, closing)


def comment(text: str, *, indent: int = 0) -> str:
    """Return `text` as lines of comment, the first one without its margin."""
    margin = " " * indent
    return "\n".join(textwrap.wrap(text, WIDTH, initial_indent=f"{margin}# ", subsequent_indent=f"{margin}# ")).lstrip()


def parts(name: str, values: Sequence[object]) -> str:
    """Return a field of the declaration that is a tuple: one part a line, or a single one that fits on one line."""
    line = f"{name}=({source(values[0])},)"
    if len(values) == 1 and len(line) + 5 <= WIDTH:
        return line
    return f"{name}=(\n" + "".join(f"        {source(v, indent=8, short=1)},\n" for v in values) + "    )"


def docstring(first: str, more: str) -> str:
    """Return a docstring of one line, and of what follows it, if anything does."""
    body = "".join(f"\n\n{line}" for line in ["\n".join(textwrap.wrap(more, WIDTH))] if more)
    return f'"""{first}{body}{chr(10) * bool(body)}"""'


def spec_imports(draft: Draft) -> list[str]:
    """Return what spec.py imports from pipeline.spec, sorted as ruff does."""
    spec = draft.spec
    names = {"Input", "OnnxOp", "OpSpec", "Output", "Tolerance"}
    names |= {"TorchOp"} if spec.torch else set()
    names |= {"Override"} if spec.torch and spec.torch.overrides else set()
    names |= {"Attribute"} if spec.attributes else set()
    names |= {type(o.shape).__name__ for o in spec.outputs}
    return sorted(names)


def parameters(spec: OpSpec) -> list[str]:
    """Return the parameters of the reference."""
    found = [f"{i.name}: {array_type(i)}" for i in spec.inputs]
    named = [f"{a.name}: {_TYPES[a.kind]}" for a in spec.attributes]
    return [*found, *(["*"] if named else []), *named]


def array_type(part: Input) -> str:
    array = "NDArray[Any]"
    return f"tuple[{array}, ...]" if part.variadic else f"{array} | None" if part.optional else array


def returned(spec: OpSpec) -> str:
    """Return the type of what the reference returns."""
    one = "NDArray[Any]"
    return one if len(spec.outputs) == 1 else f"tuple[{', '.join([one] * len(spec.outputs))}]"


def signature(spec: OpSpec) -> str:
    return bracket(f"def {spec.name}(", parameters(spec), f") -> {returned(spec)}:")


def how_to_read(spec: OpSpec) -> Iterator[str]:
    """Yield, for each argument but the first input, what the reference is given and how it is taken."""
    for part in spec.inputs:
        if part.variadic:
            yield f"{part.name}, a variadic input, is a tuple of arrays, maybe empty: for one in {part.name}: ..."
        elif part.optional:
            yield f"{part.name}, an optional input, is None where it is absent: if {part.name} is not None: ..."
        else:
            yield f"{part.name} is an array: {part.name}.shape, {part.name}.dtype, {part.name} + 1"
    for found in spec.attributes:
        yield f"{found.name}, {_attribute(found)}"


def _attribute(found: Attribute) -> str:
    name = found.name
    match found.kind:
        case "float":
            return f"a float, is the float32 that ONNX stores: x * {name}"
        case "int":
            return f"an int: range({name})"
        case "bool":
            return f"a bool: if {name}: ..."
        case "string":
            return f"a text: if {name} == {literal(found.default or VALUES['string'][0])}: ..."
        case _:
            return f"a list, is a tuple of {found.kind}: for one in {name}: ..."


def copied(draft: Draft) -> str:
    """Return what the reference of a placeholder returns."""
    found = []
    for output in draft.spec.outputs:
        source = draft.source(output)
        if source:
            found.append(f"{source.name}.copy()")
        else:
            shaped = output.shape.input if isinstance(output.shape, SameAs) else draft.first.name
            dtype = output.type if output.type not in draft.spec.types else f"{draft.first.name}.dtype"
            shown = dtype if "." in dtype else "np.bool_" if dtype == "bool" else f"np.{dtype}"
            found.append(f"np.zeros({shaped}.shape, {shown})")
    return ", ".join(found)


def case_inputs(draft: Draft) -> list[str]:
    """Return the items of the dict of one case's inputs: what is optional is there where `whole` says so."""
    found = []
    for part in draft.spec.inputs:
        tensor = "Random(shape=shape)"
        if part is draft.first:
            fields = ["shape=shape", *_range(draft), "layout=layout"]
            fields += ["specials=SPECIALS if special else {}"] if special(draft) else []
            tensor = f"Random({', '.join(fields)})"
        if part.variadic:
            tensor = f"({tensor}, {tensor}) if whole else ()"
        elif part.optional:
            tensor += " if whole else None"
        found.append(f"{literal(part.name)}: {tensor}")
    return found


def _range(draft: Draft) -> Iterator[str]:
    """Yield what of `Random` says that numbers are such as the formula is defined for."""
    if draft.formula and draft.formula.mean:
        yield f"mean={draft.formula.mean}"
    if draft.formula and draft.formula.deviation != 1.0:
        yield f"deviation={draft.formula.deviation}"


def special(draft: Draft) -> bool:
    """Return whether the first input can hold NaN and infinities in every choice of dtypes."""
    if draft.aten and not draft.formula:
        return False  # what torch makes of them is for the person to say
    first = draft.first.type
    return all(d.startswith("float") for d in draft.spec.types.get(first, (first,)))


def values(draft: Draft, index: int) -> dict[str, AttributeValue]:
    """Return the attributes of the model at `index`: in the first those without a default, in the second all."""
    found: dict[str, AttributeValue] = {}
    for one in draft.spec.attributes:
        if one.name in draft.attributes:
            found[one.name] = draft.attributes[one.name]
        elif one.default is None or index:
            value = VALUES[one.kind][index]
            if value == one.default:
                value = VALUES[one.kind][0]
            if one.kind == "string" and one.default is not None:
                continue  # nothing tells another text that it takes
            found[one.name] = value
    return found


def has_whole(spec: OpSpec) -> bool:
    """Return whether a case may leave an input out."""
    return any(not is_required(i) for i in spec.inputs)
