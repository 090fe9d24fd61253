"""The files of an operator from its draft. Pure: a draft in, texts out."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2

from pipeline.glue import filling
from pipeline.glue.native_parts import cpp_type
from pipeline.scaffold import cases_text, cpp_text, python_text
from pipeline.scaffold.draft import Draft, fresh, new_outputs
from pipeline.schema import torch_schema
from pipeline.source import literal, source
from pipeline.spec import Input, OpSpec, Output, SameAs
from pipeline.unfilled import MARK


def render(draft: Draft) -> dict[str, str]:
    """Return the text of every file of an operator, by its path below the project's root."""
    name = draft.spec.name
    said = placeholder(draft)
    return {
        f"ops/{name}/spec.py": _text("spec.py", **_spec(draft)),
        f"ops/{name}/cases.py": _text("cases.py", spec=draft.spec, **cases_text.render(draft)),
        f"ops/{name}/reference.py": _text("reference.py", draft=draft, **_reference(draft, said)),
        f"ops/{name}/README.md": _text("README.md", draft=draft, spec=draft.spec, **_readme(draft, said)),
        f"native/{name}/kernel.h": _text("kernel.h", draft=draft, spec=draft.spec, **_kernel(draft, said)),
    }


def placeholder(draft: Draft) -> str:
    """Return what a placeholder computes, as a sentence."""
    copies: dict[str, list[str]] = {}
    for output in draft.spec.outputs:
        source = draft.source(output)
        copies.setdefault(source.name if source else "", []).append(output.name)
    parts = [
        f"{_listed(names)} {'is' if len(names) == 1 else 'are'} "
        + (f"{'a copy' if len(names) == 1 else 'copies'} of {source}" if source else "all zeros")
        for source, names in copies.items()
    ]
    return f"{', and '.join(parts)}, whatever else is given."


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


@cache
def _environment() -> jinja2.Environment:
    environment = filling.environment("pipeline.scaffold")
    environment.filters["literal"] = literal
    environment.globals.update(source=source, parts=python_text.parts)
    return environment


def _text(file: str, **variables: Any) -> str:
    return _environment().get_template(f"{file}.j2").render(variables)


def _spec(draft: Draft) -> dict[str, Any]:
    spec = draft.spec
    return {
        "draft": draft,
        "spec": spec,
        "docstring": python_text.docstring(
            f"{MARK}: what {spec.name} is.", draft.origin[:1].upper() + draft.origin[1:]
        ),
        "imports": python_text.bracket("from pipeline.spec import ", python_text.spec_imports(draft), ""),
        "comment": python_text.comment,
    }


def _reference(draft: Draft, said: str) -> dict[str, Any]:
    copied = python_text.copied(draft)
    outputs = _listed([o.name for o in draft.spec.outputs])
    return {
        "outputs": f"{outputs}, of the shape of {draft.first.name}" if draft.copies or draft.formula else outputs,
        "numpy": bool(draft.formula) or (draft.copies and "np." in copied),
        "signature": python_text.signature(draft.spec),
        "readings": [] if draft.formula else list(python_text.how_to_read(draft.spec)),
        "copied": copied,
        "placeholder": said,
        "comment": python_text.comment,
    }


def _kernel(draft: Draft, said: str) -> dict[str, Any]:
    spec = draft.spec
    return {
        "comment": cpp_text.comment,
        "placeholder": said,
        "needs_list": cpp_text.needs_list(spec),
        "needs_math": draft.formula is not None and "std::" in draft.formula.cpp,
        "typenames": cpp_text.typenames(spec),
        "signature": cpp_text.signature(spec),
        "readings": [] if draft.formula else list(cpp_text.readings(draft)),
        "new": new_outputs(spec),
        "outputs": [
            (o, source and source.name, _shaped(draft, o.shape)) for o in spec.outputs for source in [draft.source(o)]
        ],
        "types": {o.name: cpp_type(spec, o.type) for o in spec.outputs},
        "i": fresh("i", cpp_text.names(spec)),
        "value": fresh("value", cpp_text.names(spec)),
    }


def _shaped(draft: Draft, rule: object) -> str:
    return rule.input if isinstance(rule, SameAs) else draft.first.name


def _readme(draft: Draft, said: str) -> dict[str, Any]:
    spec = draft.spec
    kinds = {i.name: " (optional)" if i.optional else " (any number)" if i.variadic else "" for i in spec.inputs}
    return {
        "placeholder": said,
        "torch_name": _torch_name(spec),
        "schema": torch_schema(spec) if spec.torch else "",
        "inputs": ", ".join(f"`{name}`{kind}" for name, kind in kinds.items()),
        "attributes": ", ".join(f"`{a.name}`" for a in spec.attributes),
        "outputs": ", ".join(f"`{o.name}`" for o in spec.outputs),
        "types": _types(spec),
    }


def _torch_name(spec: OpSpec) -> str:
    if spec.torch is None:
        return "none: it exists in ONNX alone"
    return f"`{spec.torch.name}`" + (": torch's own, overridden in exports" if spec.torch.overrides else "")


def _types(spec: OpSpec) -> str:
    """Return the dtypes that inputs and outputs take, those of a type variable once."""
    parts: dict[str, list[str]] = {}
    both: list[Input | Output] = [*spec.inputs, *spec.outputs]
    for part in both:
        parts.setdefault(" or ".join(spec.types.get(part.type, (part.type,))), []).append(f"`{part.name}`")
    return "; ".join(f"{', '.join(names)}: {dtypes}" for dtypes, names in parts.items())
