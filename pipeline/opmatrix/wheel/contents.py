"""The files of a wheel, its licences (the project's, opmatrix's, those of headers compiled into it), its platform."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jinja2

from opmatrix.basics.errors import DistError
from opmatrix.codegen import python_modules
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.signature.python_source import names, source
from opmatrix.signature.signature import callers_name, callers_schema, has_torch_library
from opmatrix.signature.versions import versions
from opmatrix.spec import OpSpec
from opmatrix.toolchain.symbols import Symbols, newest_versions, version_text
from opmatrix.wheel import settings, sources
from opmatrix.wheel.settings import TABLE, Dist

_RENDERED = {
    "{name}/__init__.py": "init.py.j2",
    "{name}/_registered.py": "registered.py.j2",
    "{name}/_operators/__init__.py": "operators.py.j2",
    "{name}/onnx.py": "onnx.py.j2",
    "{name}/functional.py": "functional.py.j2",
    "{name}_onnxruntime/__init__.py": "onnxruntime.py.j2",
}
_LICENSE_NAME = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)


def files(paths: Paths, dist: Dist, operators: Sequence[Operator], *, opmatrix: str) -> dict[str, bytes]:
    """Return the files of both packages by their paths in the wheel.

    Raises DistError for a handwritten file with an import that the wheel lacks.
    """
    name = dist.name
    vendored = sources.vendored_source(name, version=opmatrix)
    texts = {f"{name}/{path}": text for path, text in vendored.items()}
    modules: dict[str, list[str]] = {}
    for operator in operators:
        summary = escaped(operator.spec.summary)
        made = {"__init__.py": f'"""{summary}"""\n', "declaration.py": declaration(operator.spec, name)}
        for file, source_path in settings.of_operator(paths, operator).items():
            text, shown = source_path.read_text(encoding="utf-8"), str(source_path.relative_to(paths.root))
            made[file] = sources.rewrite_handwritten(text, name, shown=shown, vendored=vendored)
        modules[operator.name] = [Path(file).stem for file in sorted(made) if file != "__init__.py"]
        texts |= {f"{name}/_operators/{operator.name}/{file}": text for file, text in made.items()}
    found_variables = variables(dist, [o.spec for o in operators], modules)
    for path, template in _RENDERED.items():
        texts[path.format(name=name)] = render(template, found_variables)
    texts |= {f"{name}/py.typed": "", f"{name}_onnxruntime/py.typed": ""}
    contents = {path: text.encode() for path, text in texts.items()}
    for side in settings.sides(operators):
        library = paths.linked_library(name, side)
        contents[f"{name}/{library.name}"] = library.read_bytes()
    return contents


def declaration(spec: OpSpec, package: str) -> str:
    """Return the text of a module that defines SPEC, without the fields that only compiling and testing need."""
    text = source(
        dataclasses.replace(
            spec,
            tolerances={},
            kernel=None,
            headers=(),
            discontinuous="",
            full_range=False,
            reference="numpy",
            dependent_reference="",
        )
    )
    imports = f"from {package}._opmatrix.spec import {', '.join(names(text))}"
    return f'"""{escaped(spec.summary)}"""\n\n{imports}\n\nSPEC = {text}\n'


def escaped(text: str) -> str:
    """Return `text` escaped for a docstring in triple double quotes."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'{text[:-1]}\\"' if text.endswith('"') else text


@cache
def _environment() -> jinja2.Environment:
    environment = python_modules.environment().overlay(loader=jinja2.PackageLoader("opmatrix.wheel"))
    environment.filters = {**environment.filters, "escaped": escaped}
    return environment


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a file of this room's templates with `variables`."""
    return _environment().get_template(template).render(values)


def variables(dist: Dist, specs: Sequence[OpSpec], modules: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what the templates name; `modules` of each operator."""
    functions = [
        {
            "name": spec.name,
            "summary": spec.summary,
            "schema": callers_schema(spec),
            "path": callers_name(spec).replace("::", "."),
            **python_modules.function(spec),
        }
        for spec in specs
        if spec.torch and not spec.torch.overrides
    ]
    newest: dict[str, int] = {}  # the newest version of a schema in each domain
    for spec in specs:
        newest[spec.onnx.domain] = max(newest.get(spec.onnx.domain, 1), *versions(spec))
    return {
        "name": dist.name,
        "version": dist.version,
        "summary": dist.summary,
        "modules": modules,
        "torch_library": any(map(has_torch_library, specs)),
        "operators": functions,
        "sequences": any("Sequence" in typed for f in functions for typed in f["typed"]),
        "completed": [spec.name for spec in specs if any(i.variadic for i in spec.inputs)],
        "later": sorted(f"{domain} {version}" for domain, version in newest.items() if version > 1),
    }


def licenses(root: Path, dist: Dist, operators: Sequence[Operator]) -> dict[str, bytes]:
    """Return the files by their paths below `.dist-info/licenses`.

    Raises DistError for a package that has headers but no licence file.
    """
    contents = {file: (root / file).read_bytes() for file in dist.licenses}
    contents["opmatrix/LICENSE"] = sources.LICENSE.read_bytes()
    declared = {(h.distribution or h.folder): h for o in operators for h in o.spec.headers}
    for owner, headers in sorted(declared.items()):
        files = dist.third_party.get(owner)
        if files is not None:
            contents |= {f"{owner}/{Path(file).name}": (root / file).read_bytes() for file in files}
            continue
        if headers.distribution is None:  # in the folder of the project that holds the headers
            folder = (root / headers.folder).glob("*")
            carried = sorted(p for p in folder if p.is_file() and _LICENSE_NAME.match(p.name))
        else:  # in the package's metadata
            listed = metadata.distribution(headers.distribution).files or ()
            found_files = [f for f in listed if _LICENSE_NAME.match(f.name) and ".dist-info" in f.parts[0]]
            carried = [Path(str(f.locate())) for f in found_files]
        if not carried and headers.distribution:
            raise DistError(
                f"the package {owner!r}, with whose headers operators are compiled, carries no licence. Keep its text "
                f"in the project, and name the file: pyproject.toml: {TABLE}: third-party-licenses = "
                f"{{{owner} = ['third_party/{owner}/LICENSE']}}"
            )
        contents |= {f"{owner}/{path.name}": path.read_bytes() for path in carried}
    return contents


def header_packages(operators: Sequence[Operator]) -> dict[str, str]:
    """Return the version of each package whose headers the operators are compiled with."""
    named = {h.distribution for o in operators for h in o.spec.headers if h.distribution}
    return {name: metadata.version(name) for name in sorted(named)}


# Comes from another package that the user installs, and is no part of a platform.
_EXTERNAL = ("libtorch_cpu.so",)


def platform(libraries: Sequence[Symbols]) -> str:
    """Return the tag of the oldest manylinux platform that libraries run on, such as ``manylinux_2_17_x86_64``.

    manylinux.json is the policy of PyPA's auditwheel (6.8.2, MIT, manylinux-policy.json), reduced to x86-64 and to the
    libraries that a compiler links by itself; each platform adds to those before it. We do not run auditwheel, because
    it searches the machine for the libraries, and libtorch need not be there. Raises DistError if no platform fits.
    """
    needed = {name for found in libraries for name in found.needed} - {*_EXTERNAL}
    versions = {version for found in libraries for version in found.versions}
    symbols = {symbol for found in libraries for symbol in found.undefined | found.weak | found.versioned}
    left = {*needed, *versions}
    for policy in json.loads(sources.POLICY.read_text(encoding="utf-8")):
        left -= {*policy["versions"], *policy["libraries"]}
        left = {name for name in left if not name.startswith("ld-linux")}
        if not left and not symbols & {*policy["forbidden"]}:
            return f"{policy['tag']}_x86_64"
    raise DistError(
        f"no manylinux platform has {', '.join(sorted(left))}, which the libraries need. Link other libraries "
        "statically, or compile on an older system"
    )


def highest(libraries: Sequence[Symbols]) -> dict[str, str]:
    """Return the newest version of each symbol family that is needed: ``{"GLIBC": "2.14", "GLIBCXX": "3.4.29"}``."""
    found = newest_versions(version for library in libraries for version in library.versions)
    return {family: version_text(version) for family, version in found.items()}
