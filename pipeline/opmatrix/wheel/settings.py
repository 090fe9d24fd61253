"""The wheel's settings, [tool.opmatrix.dist] in pyproject.toml, and its inputs. Imports no jinja2."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from opmatrix.basics.errors import did_you_mean
from opmatrix.codegen import generated_files
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.project.settings import read_values, setting, settings
from opmatrix.signature.signature import OWN_ORT, OWN_TORCH, has_ort_library, has_torch_library, is_own
from opmatrix.spec import OpSpec

TEMPLATES = tuple(sorted((Path(__file__).parent / "templates").glob("*.j2")))
_PACKAGE = Path(__file__).parents[1]
PROGRAMS = (_PACKAGE / "wheel/use_unpacked.py", _PACKAGE / "ort_checks/cast_edges.py")


def sides(operators: Sequence[Operator]) -> tuple[str, ...]:
    """Return the frameworks that the wheel has a library for: "torch", "ort" or both."""
    has_library = {"torch": has_torch_library, "ort": has_ort_library}
    return tuple(side for side, has in has_library.items() if any(has(o.spec) for o in operators))


def of_operator(paths: Paths, operator: Operator) -> dict[str, Path]:
    """Return the Python files that the wheel copies from an operator, by their names in the wheel."""
    own = {"own_lowering.py": paths.lowering(operator.name), "torch_op.py": paths.torch_op(operator.name)}
    generated = {file: paths.generated(operator.name) / file for file in generated_files.python_files(operator.spec)}
    return {**generated, **{file: path for file, path in own.items() if path.is_file()}}


def has_gradient(paths: Paths, spec: OpSpec) -> bool:
    """Return whether an operator has a gradient: another operator, or backward() in torch_op.py."""
    path = paths.torch_op(spec.name)
    return bool(backward_of(spec)) or (path.is_file() and "\ndef backward(" in path.read_text(encoding="utf-8"))


def sources(paths: Paths, operators: Sequence[Operator]) -> tuple[Path, ...]:
    """Return the handwritten files that operators are built from: their folders and the project's C++ headers."""
    own = (folder for o in operators for folder in (paths.op(o.name), paths.native / o.name))
    folders = (*own, paths.include, paths.binding)
    inside = (folder for folder in folders if folder.is_relative_to(paths.root) and folder.is_dir())
    found = (path for folder in inside for path in folder.rglob("*"))
    return tuple(sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts))


TABLE = "[tool.opmatrix.dist]"
# Packages that are used together with a wheel of operators: it must not have the name of one.
_RESERVED_NAMES = frozenset({"torch", "onnx", "onnxruntime", "onnxscript", "onnx_ir", "numpy", "pipeline", "opmatrix"})
# The normal form of a version in PEP 440.
_VERSION = re.compile(
    r"(?:[1-9]\d*!)?(?:0|[1-9]\d*)(?:\.(?:0|[1-9]\d*))*(?:(?:a|b|rc)(?:0|[1-9]\d*))?(?:\.post(?:0|[1-9]\d*))?"
    r"(?:\.dev(?:0|[1-9]\d*))?(?:\+[a-z0-9]+(?:\.[a-z0-9]+)*)?"
)


def why_no_name(name: Any) -> str | None:
    """Return which names are allowed for a wheel if `name` is not, else None."""
    if not isinstance(name, str) or not re.fullmatch(r"[a-z](?:_?[a-z0-9])*", name) or len(name) > 100:
        return "allowed: what Python can import, at most 100 small letters, digits and single _, such as 'my_ops'"
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or name in _RESERVED_NAMES:
        return "allowed: a name that is not taken by Python itself or a package that the wheel is used with"
    return None


def _wrong_name(name: Any) -> Sequence[str]:
    return [f"found {name!r}, {why}"] if (why := why_no_name(name)) else []


def _is_line(value: Any) -> bool:
    return isinstance(value, str) and "\n" not in value


@dataclass(frozen=True, kw_only=True)
class Dist:
    """The settings of one wheel.

    `operators` are the chosen ones and those that they use, sorted. `licenses` are files of the project;
    `third_party` are licence files of others, by the package or the folder whose headers a declaration names.
    """

    TABLE: ClassVar[str] = "dist"
    name: str = setting(_wrong_name)
    """what is imported: small letters, digits and single underscores; required"""
    version: str = setting(
        lambda version: isinstance(version, str) and _VERSION.fullmatch(version),
        "a version as PEP 440 has it, such as '1.0.0' or '1.1.0rc1'",
    )
    """as PEP 440 has it, such as `1.0.0`; required"""
    operators: tuple[str, ...] = setting(lambda _: ())  # `_wrong_operators` checks them, with all that there are
    """a list; without it all that have a library that opmatrix builds and no handwritten binding"""
    summary: str = setting(_is_line, "a string of one line")
    """one line"""
    license: str | None = setting(_is_line, "a string of one line", default=None)
    """as SPDX spells it"""
    licenses: tuple[str, ...] = setting(lambda _: (), key="license-files")
    """a list of files of the project; a LICENSE is taken by itself"""
    third_party: Mapping[str, Sequence[str]] = setting(
        lambda files: isinstance(files, dict), "files by package, {cmeel-eigen = ['MPL2']}", key="third-party-licenses",
        default_factory=dict,
    )  # fmt: skip
    """files of the project, by the package or the folder whose headers an operator includes"""

    def chosen(self, operators: Sequence[Operator]) -> tuple[Operator, ...]:
        """Return the operators that the wheel holds."""
        shipped = {*self.operators}
        return tuple(o for o in operators if o.name in shipped)


def read(paths: Paths, operators: Sequence[Operator]) -> Dist | None:
    """Return the project's settings, or None if it has none or nothing to ship. Raises UsageError."""
    table = settings(paths, "dist")
    if not table or not ("operators" in table or any(map(_ships, operators))):
        return None
    return parse(table, operators, root=paths.root)


def unusable(paths: Paths, failed: Iterable[str]) -> tuple[str, ...]:
    """Return the operators of the wheel that are in `failed`, those that cannot be used."""
    table = settings(paths, "dist")
    asked = table.get("operators") if table else ()
    return tuple(name for name in failed if asked is None or (isinstance(asked, list) and name in asked))


def parse(table: Mapping[str, Any], operators: Sequence[Operator], *, root: Path) -> Dist:
    """Return the settings. Raises UsageError with all mistakes, one per line."""
    known = {o.name: o for o in operators}
    default = {
        "operators": [name for name, o in known.items() if _ships(o)],
        "summary": "",
        "license-files": ["LICENSE"] if (root / "LICENSE").is_file() else [],
    }

    def further(values: Mapping[str, Any]) -> Iterator[str]:
        wrong = [*_missing("license-files", values["licenses"], root)]
        if isinstance(third := values.get("third_party"), dict):
            wrong += [w for name in third for w in _missing(f"third-party-licenses: {name}", third[name], root)]
        wrong += _wrong_operators(values["operators"], known)
        yield from (f"pyproject.toml: {TABLE}: {mistake}" for mistake in wrong)

    values = read_values(Dist, {**default, **table}, {}, further)
    chosen = _with_used(values.pop("operators"), known)
    if "summary" not in table:
        values["summary"] = f"Operators for torch and ONNX Runtime: {', '.join(chosen)}."
    return Dist(**values, operators=chosen)


def _missing(field: str, files: Any, root: Path) -> Iterator[str]:
    if not isinstance(files, list) or not all(isinstance(file, str) for file in files):
        yield f"{field}: found {files!r}, allowed: a list of files of the project such as ['LICENSE']"
        return
    for file in files:
        if Path(file).is_absolute() or ".." in Path(file).parts or not (root / file).is_file():
            yield f"{field}: found {file!r}, allowed: a file of the project"


def _wrong_operators(asked: Any, declared: Mapping[str, Operator]) -> Iterator[str]:
    there = ", ".join(declared) or "none; make ops/<name>/spec.py"
    if not isinstance(asked, list) or not asked or not all(isinstance(name, str) for name in asked):
        yield f"operators: found {asked!r}, allowed: a list of folders of ops/: {there}"
        return
    for name in asked:
        if name not in declared:
            yield f"operators: no operator {name!r} in ops/, there is: {there}{did_you_mean(name, declared)}"
    if len(set(asked)) != len(asked):
        yield f"operators: found {asked!r}, allowed: each once"
    found = [declared[name] for name in _with_used([name for name in asked if name in declared], declared)]
    if found and not sides(found):
        yield f"operators: none of {', '.join(asked)} has a library that opmatrix builds, so there is nothing to link"
    for operator in found:
        for file in _handwritten_bindings(operator):
            yield (
                f"operators: {operator.name!r} has a binding by hand, native/{operator.name}/{file}, which cannot be "
                "linked together with others: leave it out, or remove that file and write kernel.h"
            )


def _handwritten_bindings(operator: Operator) -> list[str]:
    return [file for file in (OWN_TORCH, OWN_ORT) if is_own(file, operator.spec, operator.handwritten_files)]


def _ships(operator: Operator) -> bool:
    """Return whether an operator ships by default: it has a library, and its bindings are generated."""
    return bool(sides([operator])) and not _handwritten_bindings(operator)


def _with_used(asked: Sequence[str], declared: Mapping[str, Operator]) -> tuple[str, ...]:
    specs = [declared[name].spec for name in asked]
    used = {other for spec in specs for other in (*spec.uses, backward_of(spec)) if other in declared}
    return tuple(sorted({*asked, *used}))
