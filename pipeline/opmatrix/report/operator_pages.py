"""The page of a project's operators: one section each, from its declaration, README and models, and the code spans,
escaped text and tables of GitHub's Markdown for all generated pages.

The sections follow ONNX's own Operators.md: version, attributes, inputs, outputs, type constraints.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from opmatrix.basics.files import write_text
from opmatrix.codegen.onnx_schema import onnx_type
from opmatrix.declaration.load import Operator, load_operators
from opmatrix.project.paths import Paths
from opmatrix.signature.signature import callers_schema, onnx_name, torch_name
from opmatrix.sizes.values import summary
from opmatrix.sizes.variadic import counter
from opmatrix.spec import Attribute, Dims, FromKernel, Input, Model, OpSpec, Output, Override, SameAs


def code(text: object) -> str:
    """Return `text` as a code span, which shows every character literally; "" for an empty text."""
    shown = str(text)
    fence = "``" if "`" in shown else "`"
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}" if shown else ""


def codes(values: Iterable[object]) -> str:
    return ", ".join(map(code, values))


def prose(text: str) -> str:
    """Escape ``<`` outside code, so that ``ops/<name>/`` is not read as an HTML tag."""
    pieces = re.split(r"(``.+?``|`[^`]+`|^ {4}.*)", text, flags=re.MULTILINE)
    return "".join(piece if piece.startswith(("`", "    ")) else piece.replace("<", "\\<") for piece in pieces)


def plain(text: str) -> str:
    """Return `text` on one line, escaped by `prose`."""
    return prose(" ".join(text.split()))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without its empty columns; "" without rows."""
    cells = [[field.replace("|", "\\|") for field in row] for row in rows]
    kept = [n for n in range(len(titles)) if any(row[n] for row in cells)]
    head, *lines = (f"| {' | '.join(row[n] for n in kept)} |" for row in (titles, *cells))
    return "\n".join([head, f"|{'---|' * len(kept)}", *lines]) if kept else ""


def render(operators: Sequence[Operator], readmes: Mapping[str, str], *, ops: str) -> str:
    """Return the page. `readmes` are the README.md texts by operator; `ops` is the link from the page to ops/."""
    sections = [_section(o, readmes.get(o.name, ""), f"{ops}/{o.name}") for o in operators]
    return "\n\n".join(["# Operators", _overview(operators), *sections]) + "\n"


def introduction(readme: str) -> str:
    """Return the part of a README between its title and its first table or section."""
    body = readme.partition("\n")[2] if readme.startswith("# ") else readme
    return re.split(r"^(?:\||#)", body, maxsplit=1, flags=re.MULTILINE)[0].strip("\n")


def _overview(operators: Iterable[Operator]) -> str:
    def row(spec: OpSpec) -> Iterator[str]:
        yield f"[{spec.name}](#{spec.name})"
        yield code(spec.torch.name) if spec.torch else "none"
        yield f"nodes of {codes(spec.uses)}" if spec.uses else code(f"{spec.onnx.domain}::{spec.onnx.op_type}")
        yield ", ".join(spec.lowerings)
        yield plain(spec.summary)

    titles = ("operator", "in torch", "in ONNX", "lowerings", "what it does")
    return table(titles, [[*row(o.spec)] for o in operators]) or "This project has no operators."


def _section(operator: Operator, readme: str, folder: str) -> str:
    spec = operator.spec
    description = re.sub(r"\]\((?![a-z]+:|#)([^)]+)\)", rf"]({folder}/\1)", introduction(readme))
    types = [(code(name), codes(onnx_type(spec, dtype) for dtype in dtypes)) for name, dtypes in spec.types.items()]
    tables = {
        "Attributes": _attributes(spec),
        "Inputs": _inputs(spec),
        "Outputs": _outputs(spec),
        "Type constraints": table(("variable", "stands for"), types),
        "Tolerances": _tolerances(spec),
        "Models that are exported and verified": _models(operator.models),
    }
    parts = (
        f"## {spec.name}",
        plain(spec.summary),
        description if plain(description) != plain(spec.summary) else "",
        _facts(operator, folder, has_readme=bool(readme)),
        *(f"**{title}**\n\n{content}" for title, content in tables.items() if content),
    )
    return "\n\n".join(part for part in parts if part)


def _facts(operator: Operator, folder: str, *, has_readme: bool) -> str:
    spec = operator.spec
    files = [("declaration", "spec.py"), ("reference", "reference.py"), ("cases", "cases.py")]
    if has_readme:
        files.insert(0, ("tolerances and their reasons", "README.md"))
    rows = {
        "torch": code(callers_schema(spec)) if spec.torch else "none: it exists in ONNX alone",
        "defined in": "`torch_op.py`, in Python" if spec.torch and spec.torch.python else "",
        "replaces": "; ".join(map(_override, spec.torch.overrides)) if spec.torch else "",
        "ONNX": _node(spec),
        "versions of the domain": ", ".join(map(str, spec.onnx.versions)),
        "opsets": f"from {spec.min_opset} on",
        "kernel": "of ONNX Runtime itself (a contrib op)" if spec.runtime == "contrib" else "",
        "lowerings": ", ".join(spec.lowerings),
        "files": ", ".join(f"[{name}]({folder}/{file})" for name, file in files),
    }
    return table(("", ""), [(name, value) for name, value in rows.items() if value])


def _node(spec: OpSpec) -> str:
    if spec.uses:
        return f"no node of its own; its lowering writes those of {codes(spec.uses)}"
    return f"{code(spec.onnx.op_type)} of domain {code(spec.onnx.domain)}, since version {spec.onnx.since_version}"


def _override(override: Override) -> str:
    since = [f"from torch {override.first} on"] if override.first else []
    until = [f"up to torch {override.last}"] if override.last else []
    return " ".join([code(override.name), *since, *until])


def _attributes(spec: OpSpec) -> str:
    def row(a: Attribute) -> tuple[str, ...]:
        limits = [f"{sign} {limit:g}" for sign, limit in (("≥", a.minimum), ("≤", a.maximum)) if limit is not None]
        allowed = [f"one of {codes(a.allowed)}"] if a.allowed else []
        side = "in torch alone" if a.torch_only else "in ONNX alone" if a.kind == "tensor" else ""
        names = [f"{code(torch_name(a))} in torch"] if torch_name(a) != a.name and spec.torch else []
        names += [f"{code(onnx_name(a))} in ONNX"] if onnx_name(a) != a.name else []
        default = "required" if a.default is None and not a.optional else code(repr(a.default))
        where = "; ".join(filter(None, (*names, side)))
        return code(a.name), a.kind, default, "; ".join([*limits, *allowed]), where, plain(a.doc)

    return table(("name", "kind", "default", "allowed", "where", "meaning"), map(row, spec.attributes))


def _inputs(spec: OpSpec) -> str:
    def row(i: Input) -> tuple[str, ...]:
        shape = f"that of {code(i.same_as)}" if i.same_as else code(_dims(i.dims)) if i.dims is not None else "any"
        shape += f", with the further sizes of {code(i.further_as)}" if i.further_as else ""
        shape += f", of rank {code(i.rank)}" if i.rank else ""
        shape += "".join(f", {code(dim)} along {code(attribute)}" for attribute, dim in (i.at or {}).items())
        count = "may be absent" if i.optional else "any number" if i.variadic else ""
        values = plain(summary(i.values)) if i.values else ""
        return code(i.name), code(onnx_type(spec, i.type)), shape, count, values, plain(i.doc)

    return table(("name", "type", "shape", "how many", "values", "meaning"), map(row, spec.inputs))


def _outputs(spec: OpSpec) -> str:
    def row(o: Output) -> tuple[str, ...]:
        count = f"if {code(o.optional)}" if isinstance(o.optional, str) else "may be absent" if o.optional else ""
        count = _count(spec, o) if o.variadic else count
        return code(o.name), code(onnx_type(spec, o.type)), _shape(o), count, plain(o.doc)

    return table(("name", "type", "shape", "how many", "meaning"), map(row, spec.outputs))


def _count(spec: OpSpec, output: Output) -> str:
    part, name = counter(spec), code(str(output.variadic))
    if isinstance(part, Attribute) and part.kind == "int":
        return name
    return f"one for each {'item' if isinstance(part, Attribute) else 'tensor'} of {name}"


def _shape(output: Output) -> str:
    match output.shape:
        case SameAs(input=str(name), replace=replace) | FromKernel(input=str(name), replace=replace) as rule:
            changed = ", ".join(f"axis {key}: {'none' if dim is None else dim}" for key, dim in replace.items())
            found = "; the kernel finds the others of its sizes" * isinstance(rule, FromKernel)
            return f"that of {code(name)}" + (f", but {changed}{found}" if changed else "")
        case Dims(dims=dims):
            return code(_dims(dims))
        case FromKernel(rank=rank, dims=None):
            return f"rank {rank}; the kernel finds its sizes"
        case FromKernel(dims=dims):
            return f"{code(_dims(dims or ()))}; the kernel finds the others of its sizes"
    return ""


def _dims(dims: Sequence[str | int]) -> str:
    return f"({', '.join(map(str, dims))}{',' * (len(dims) == 1)})"


def _tolerances(spec: OpSpec) -> str:
    rows = [
        (lowering, dtype, f"{limit.rtol:g}", f"{limit.atol:g}")
        for lowering, by_dtype in spec.tolerances.items()
        for dtype, limit in by_dtype.items()
    ]
    return table(("lowering", "dtype of the output", "rtol", "atol"), rows)


def _models(models: Iterable[Model]) -> str:
    def row(m: Model) -> tuple[str, ...]:
        types = ", ".join(f"{name} = {dtype}" for name, dtype in m.types.items())
        attributes = codes(f"{name} = {value!r}" for name, value in m.attributes.items())
        axes = dict.fromkeys(a for axes in m.dynamic.values() for a in axes if a)
        version = "" if m.domain_version == 1 else str(m.domain_version)
        return code(m.name), types, attributes, codes(axes), version, str(len(m.cases)), plain(m.unsupported)

    titles = ("model", "types", "attributes", "symbolic sizes", "domain version", "cases", "cannot run, because")
    return table(titles, map(row, models))


def run(paths: Paths, *, into: Path | None = None) -> None:
    """Write operators.md into build/reference/, or into `into`."""
    found = load_operators(paths)
    files = {operator.name: paths.op(operator.name) / "README.md" for operator in found}
    readmes = {name: path.read_text(encoding="utf-8") for name, path in files.items() if path.is_file()}
    page = (into or paths.reference_pages) / "operators.md"
    ops = os.path.relpath(paths.ops, page.parent)
    write_text(page, render(found, readmes, ops=ops))
    print(os.path.relpath(page))
