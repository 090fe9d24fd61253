"""Render, format and write the files of new operators. All are written or none, and none is overwritten."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from opmatrix.basics.errors import UsageError, printable
from opmatrix.codegen import cpp, jinja
from opmatrix.codegen.variables import cpp_type, kernel_parameters
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import Operator, clashes
from opmatrix.project.paths import Paths
from opmatrix.scaffold.draft import VALUES, Draft, unused
from opmatrix.signature.python_source import bracket, names, source
from opmatrix.signature.signature import allowed_dtypes, dtypes, tensors
from opmatrix.sizes.rules import list_lengths
from opmatrix.sizes.variadic import counter, sure_inputs
from opmatrix.spec import Attribute, AttributeKind, AttributeValue, Input, OpSpec, Output, SameAs

_TYPES: Mapping[AttributeKind, str] = {
    "float": "float", "int": "int", "bool": "bool", "string": "str", "floats": "tuple[float, ...]",
    "ints": "tuple[int, ...]", "strings": "tuple[str, ...]", "tensor": "NDArray[Any]",
}  # fmt: skip
_ARRAY = "NDArray[Any]"
# A part of the name of an input whose values are likely tied to a size, or sorted.
_TIED = re.compile(r"(?:^|_)(?:index|indices|idx|ids|offsets?|lengths?|ptr|positions?)(?:_|$)")


def render(draft: Draft) -> dict[str, str]:
    """Return the text of every file of an operator by its path below the project's root."""
    return {
        f"ops/{draft.spec.name}/spec.py": _text("spec.py", draft, {"tied": _listed(tied_inputs(draft.spec))}),
        f"ops/{draft.spec.name}/cases.py": _text("cases.py", draft, _cases(draft)),
        f"ops/{draft.spec.name}/reference.py": reference(draft),
        f"ops/{draft.spec.name}/README.md": _text("README.md", draft, _readme(draft.spec)),
        f"native/{draft.spec.name}/kernel.h": _text("kernel.h", draft, _kernel(draft)),
    }


def reference(draft: Draft) -> str:
    """Return the text of reference.py."""
    return _text("reference.py", draft, _reference(draft))


def tied_inputs(spec: OpSpec) -> list[str]:
    """Return the inputs whose values are likely restricted: integers, and those with the name of indices or offsets.

    A torch schema has no dtypes, so there only the name tells.
    """
    return [
        i.name
        for i in spec.inputs
        if _TIED.search(i.name) or all("int" in dtype for dtype in allowed_dtypes(spec, i.type))
    ]


def placeholder(draft: Draft) -> str:
    """Return a sentence that describes the outputs of a placeholder."""
    values: dict[tuple[str, str], list[str]] = {}
    for output in draft.spec.outputs:
        if source := draft.source(output):
            of_one = f"a copy of {source.name}", f"copies of {source.name}"
        else:
            (dtype, *_) = allowed_dtypes(draft.spec, output.type)
            value = {"string": "empty strings", "bool": "False"}.get(dtype, "zeros")
            of_one = f"all {value}", f"all {value}"
        values.setdefault(of_one, []).append(output.name)
    parts = [
        f"{_listed(names)} is {of_one}" if len(names) == 1 else f"{_listed(names)} are {of_several}"
        for (of_one, of_several), names in values.items()
    ]
    return f"{', and '.join(parts)}; other inputs are ignored."


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja.environment("opmatrix.scaffold")
    environment.filters |= {"source": source, "escaped": _escaped}
    environment.globals.update(cpp_type=cpp_type, quoted=cpp.quoted)
    return environment


def _escaped(text: str) -> str:
    return printable(text.replace("\\", r"\\").replace('""', r'"\"'))


def _text(file: str, draft: Draft, more: Mapping[str, object]) -> str:
    variables = {"draft": draft, "spec": draft.spec, "placeholder": placeholder(draft), **more}
    text = _environment().get_template(f"{file}.j2").render(variables)
    importing = "from opmatrix.spec import "
    return text.replace(f"{importing}*", importing + ", ".join(names(text))) if f"{importing}*" in text else text


def _cases(draft: Draft) -> dict[str, Any]:
    known = not draft.aten  # whether it takes inputs of any shape
    (dtypes,) = draft.spec.types.values()
    return {
        "known": known,
        "special": known and all(re.fullmatch(r"float\d+(_e5m2)?", d) for d in dtypes),  # that have infinities
        "whole": len(sure_inputs(draft.spec)) < len(draft.spec.inputs),
        "shape": ", ".join(map(str, draft.shape)),
        "values": [_attributes(draft, 0), _attributes(draft, 1)],
        "dynamic": {i.name: ("N", "M") for i in sure_inputs(draft.spec)},
        "absent": tuple(o.name for o in draft.spec.outputs if o.optional),
        "dtypes": dtypes,
    }


def _attributes(draft: Draft, index: int) -> dict[str, AttributeValue]:
    """Return the attributes that model `index` sets: model 0 those without a default, model 1 all."""
    attributes = dict(draft.attributes)
    for one in draft.spec.attributes:
        has_default = one.optional or one.default is not None
        if one.name in attributes or (has_default and (not index or one.kind == "string")):
            continue  # no other valid string is known
        length = list_lengths(draft.spec).get(one.name)
        values = [(v * length)[:length] if length and isinstance(v, tuple) else v for v in VALUES[one.kind]]
        attributes[one.name] = values[index] if values[index] != one.default else values[0]
    return attributes


def _reference(draft: Draft) -> dict[str, Any]:
    spec = draft.spec
    outputs = _listed([o.name for o in spec.outputs])
    shaped = f", of the shape of {draft.first_input.name}" if not draft.aten else ""
    kinds = [f"list[{_ARRAY}]" if output.variadic else _ARRAY for output in spec.outputs]
    returned = kinds[0] if len(kinds) == 1 else f"tuple[{', '.join(kinds)}]"
    parameters = [
        f"{i.name}: " + (f"tuple[{_ARRAY}, ...]" if i.variadic else f"{_ARRAY} | None" if i.optional else _ARRAY)
        for i in spec.inputs
    ]
    named = [f"{a.name}: {_TYPES[a.kind]}{' | None' * a.optional}" for a in spec.attributes]
    parameters += ["*", *named] if named else []
    return {
        "returned": outputs + shaped,
        "signature": bracket(f"def {spec.name}(", parameters, f") -> {returned}:"),
        "copied": ", ".join(_copied(draft, output) for output in spec.outputs),
    }


def _copied(draft: Draft, output: Output) -> str:
    """Return the expression that a placeholder's reference returns for an output."""
    if source := draft.source(output):
        if output.variadic and source.variadic:
            return f"[one.copy() for one in {source.name}]"
        part = counter(draft.spec)
        count = output.variadic if isinstance(part, Attribute) and part.kind == "int" else f"len({output.variadic})"
        return f"[{source.name}.copy() for _ in range({count})]" if output.variadic else f"{source.name}.copy()"
    module = "ml_dtypes" if output.type.startswith(("bfloat", "float8", "int4", "uint4")) else "np"
    dtype = f"{draft.first_input.name}.dtype" if output.type in draft.spec.types else f"{module}.{output.type}"
    shape = draft.sizes.get(output.name, f"{_shaped(draft, output)}.shape")
    if "string" in allowed_dtypes(draft.spec, output.type):
        return f'np.full({shape}, "", object)'
    return f"np.zeros({shape}, {dtype.replace('np.bool', 'np.bool_')})"


def _shaped(draft: Draft, output: Output) -> str:
    """Return the input whose shape a placeholder's output has."""
    return output.shape.input if isinstance(output.shape, SameAs) else draft.first_input.name


def _kernel(draft: Draft) -> dict[str, Any]:
    spec = draft.spec
    parts: list[Input | Attribute | Output] = [*spec.inputs, *spec.attributes, *spec.outputs]
    taken = {part.name for part in parts} | {*spec.types, spec.name}
    loop = {name: unused(name, taken) for name in ("i", "k")}

    def free(name: str) -> str:
        taken.add(name := unused(name, taken))
        return name

    first = draft.first_input
    read = any(first.name == _shaped(draft, o) for o in spec.outputs if o.name not in draft.sizes)
    return loop | {
        "free": free,
        "unread": [part for part in spec.inputs if part != first or not read],
        "number_headers": cpp.number_headers(dtypes(spec)),
        "signature": cpp.call(f"void {spec.name}", kernel_parameters(spec, {}), tail=" {"),
        "outputs": [(o, (source := draft.source(o)) and source.name, _shaped(draft, o)) for o in spec.outputs],
    }


def _readme(spec: OpSpec) -> dict[str, Any]:
    name = f"`{spec.torch.name}`" if spec.torch else "none: it exists in ONNX alone"
    dtypes: dict[str, list[str]] = {}
    for part in tensors(spec):
        dtypes.setdefault(" or ".join(allowed_dtypes(spec, part.type)), []).append(f"`{part.name}`")
    return {
        "torch_name": name + ": torch's own, overridden in exports" * bool(spec.torch and spec.torch.overrides),
        "types": "; ".join(f"{', '.join(names)}: {allowed}" for allowed, names in dtypes.items()),
    }


# By suffix, the command that formats a file from stdin with the project's settings; the file's path is appended.
_FORMATTERS: Mapping[str, tuple[str, ...]] = {
    ".py": ("ruff", "format", "--no-cache", "--stdin-filename"),
    ".h": ("clang-format", "--fallback-style=none", "--assume-filename"),
}


def require_absent(paths: Paths, specs: Sequence[OpSpec]) -> None:
    """Raise UsageError with each folder that exists and each name that another operator has. An operator that cannot be
    used prevents none."""
    folders = [folder for spec in specs for folder in (paths.op(spec.name), paths.kernel(spec.name).parent)]
    there = [f"{f.relative_to(paths.root)}/{_content(f)}" for f in folders if f.exists() or f.is_symlink()]
    remedy = "there already, and nothing is overwritten. Remove it, or choose another --name"
    names = {s.name for s in specs}
    others = [o for o in read_operators(paths).operators if o.name not in names]
    taken = [line for _, line in clashes([*others, *(Operator(spec=spec, models=()) for spec in specs)])]
    if found := [*(f"{one}: {remedy}" for one in there), *taken]:
        raise UsageError("\n".join([*found, "Nothing was written."]))


def _content(folder: Path) -> str:
    if not folder.is_dir():
        return ""
    names = sorted(p.name for p in folder.iterdir() if p.name != "__pycache__")
    return "{" + ", ".join(names) + "}" if len(names) > 1 else "".join(names)


def formatted(root: Path, files: Mapping[str, str]) -> dict[str, str]:
    """Return `files` by path, formatted where ruff or clang-format is there and works: neither is required."""
    programs = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    texts = dict(files)
    for path, text in files.items():
        program, *options = _FORMATTERS.get(Path(path).suffix, ("",))
        if program and (installed := shutil.which(program, path=programs)):
            command = [installed, *options, str(root / path)]
            with suppress(OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
                done = subprocess.run(command, cwd=root, input=text, capture_output=True, encoding="utf-8", timeout=60)
                texts[path] = done.stdout if done.returncode == 0 and done.stdout else text
    return texts


def write(paths: Paths, files: Mapping[str, str]) -> None:
    """Write `files` to new folders, all or none, via a temporary one; ops/ last, since it declares operators."""
    temporary = Path(tempfile.mkdtemp(prefix=".new-operator-", dir=paths.root))
    folders = sorted({Path(path).parent for path in files}, key=lambda f: (f.parts[0] == "ops", f))
    made: list[Path] = []
    try:
        for path, text in files.items():
            (temporary / path).parent.mkdir(parents=True, exist_ok=True)
            (temporary / path).write_text(text, encoding="utf-8")
        for folder in folders:
            target = paths.root / folder
            if not target.parent.exists():
                target.parent.mkdir()
                made.append(target.parent)
            if target.exists():
                raise UsageError(f"{folder}/: another process created it just now. Nothing was written.")
            (temporary / folder).rename(target)
            made.append(target)
    except BaseException:  # Ctrl-C too: a partial operator would be invalid
        for folder in reversed(made):
            shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
