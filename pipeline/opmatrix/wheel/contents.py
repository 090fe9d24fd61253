"""Every file of the wheel, but for what is about the wheel itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from opmatrix.codegen import python_modules
from opmatrix.declaration.load import Operator
from opmatrix.declaration.schema_versions import versions
from opmatrix.declaration.torch_signature import has_torch_library, torch_schema
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.wheel import declaration_text, inputs, vendored_modules
from opmatrix.wheel.settings import Dist

_DECOMPOSED = "Operators that `decomposed` names become operators of ONNX itself, where the declaration says how."
_DOMAINS = (
    "`domains` are the versions of custom domains that the model imports; "
    "without it the first, which old libraries read."
)


def files(layout: Paths, dist: Dist, operators: Sequence[Operator], *, opmatrix: str) -> dict[str, bytes]:
    """Return the files of both packages, by their paths in the wheel. Raises DistError for what cannot be shipped."""
    name = dist.name
    vendored = vendored_modules.render(name, version=opmatrix)
    texts = {f"{name}/{path}": text for path, text in vendored.items()}
    modules: dict[str, list[str]] = {}
    for operator in operators:
        made = _of_operator(layout, operator, name, vendored)
        modules[operator.name] = [Path(file).stem for file in made if file != "__init__.py"]
        texts |= {f"{name}/_operators/{operator.name}/{file}": text for file, text in made.items()}
    variables = _variables(dist, [o.spec for o in operators], modules)
    for path, template in _RENDERED.items():
        texts[path.format(name=name)] = _environment().get_template(template).render(variables)
    texts |= {f"{name}/py.typed": "", f"{name}_onnxruntime/py.typed": ""}
    found = {path: text.encode() for path, text in texts.items()}
    for side in inputs.sides(operators):
        library = layout.linked_library(name, side)
        found[f"{name}/{library.name}"] = library.read_bytes()
    return found


_RENDERED = {
    "{name}/__init__.py": "init.py.j2",
    "{name}/_registered.py": "registered.py.j2",
    "{name}/_operators/__init__.py": "operators.py.j2",
    "{name}/onnx.py": "onnx.py.j2",
    "{name}/functional.py": "functional.py.j2",
    "{name}_onnxruntime/__init__.py": "onnxruntime.py.j2",
}


def _of_operator(layout: Paths, operator: Operator, name: str, held: Mapping[str, str]) -> dict[str, str]:
    made = {
        file: vendored_modules.written(path.read_text(), name, shown=str(path.relative_to(layout.root)), held=held)
        for file, path in inputs.of_operator(layout, operator).items()
    }
    made["declaration.py"] = declaration_text.render(operator.spec, name)
    made["__init__.py"] = f'"""{declaration_text.escaped(operator.spec.summary)}"""\n'
    return dict(sorted(made.items()))


@cache
def _environment() -> jinja2.Environment:
    own = jinja2.PackageLoader("opmatrix.wheel")
    environment = python_modules.environment().overlay(loader=own)
    environment.filters = {**environment.filters, "escaped": declaration_text.escaped}
    return environment


def _variables(dist: Dist, specs: Sequence[OpSpec], modules: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    callable_ones = [spec for spec in specs if spec.torch and not spec.torch.overrides]
    functions = [_function(spec) for spec in callable_ones]
    return {
        "name": dist.name,
        "version": dist.version,
        "summary": dist.summary,
        "listed": [torch_schema(spec) for spec in callable_ones] or ["(none: they exist in ONNX alone)"],
        "modules": modules,
        "torch_library": any(map(has_torch_library, specs)),
        "operators": functions,
        "sequences": any("Sequence" in typed for f in functions for typed in f["typed"]),
        "completed": [spec.name for spec in specs if any(i.variadic for i in spec.inputs)],
        "decomposed_doc": _DECOMPOSED,
        "domains_doc": _DOMAINS,
        "later": sorted(f"{domain} {version}" for domain, version in _newest(specs).items() if version > 1),
    }


def _newest(specs: Sequence[OpSpec]) -> dict[str, int]:
    """Return, for each domain, the newest version that a schema has."""
    found: dict[str, int] = {}
    for spec in specs:
        found[spec.onnx.domain] = max(found.get(spec.onnx.domain, 1), *versions(spec))
    return found


def _function(spec: OpSpec) -> dict[str, Any]:
    assert spec.torch is not None
    path = spec.torch.name.replace("::", ".")
    return {"name": spec.name, "summary": spec.summary, "path": path, **python_modules.function(spec)}
