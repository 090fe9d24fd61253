"""Load and validate the operators of a project; report the mistakes of all files at once.

This executes spec.py and cases.py in the calling process. A process that must outlive them, such as doit's own, calls
`opmatrix.declaration.isolated.read_operators`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import SpecError, UsageError, did_you_mean, one_line, printable
from opmatrix.basics.files import line_in, load_module
from opmatrix.basics.version import older
from opmatrix.declaration import published as published_schema
from opmatrix.declaration import source_files, validation
from opmatrix.declaration.backward_operator import backward_of
from opmatrix.declaration.backward_operator import mistakes as backward_mistakes
from opmatrix.declaration.validation import Mistake
from opmatrix.project.cells import Cell, why_unreadable, why_unsupported
from opmatrix.project.dtypes import FOUR_BITS, SINCE
from opmatrix.project.paths import Paths
from opmatrix.signature import versions
from opmatrix.signature.signature import (
    HANDWRITTEN,
    ONLY_KERNEL,
    OWN_ORT,
    callers_name,
    has_four_bits,
    has_onnx_types,
    has_string_lists,
    is_own,
    model_dtypes,
    overridden_in,
    torch_qualified,
)
from opmatrix.spec import DType, Lowering, Model, OpSpec, Tolerance, as_data

STRING_LISTS_SINCE = "1.25"  # the first ONNX Runtime that gives a kernel an attribute of the type STRINGS
_NAMED = 3  # further fields with the same mistake that a message names
FOUR_BITS_CAST_SINCE = "1.24"  # the first of the matrix whose Cast takes int4


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator: its declaration, the models of its cases, its hand-written C++ files and its published versions."""

    spec: OpSpec
    models: tuple[Model, ...]
    handwritten_files: frozenset[str] = ONLY_KERNEL
    published: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.spec.name

    def unavailable_reason(self, cell: Cell) -> str | None:
        """Return why the operator is not verified in `cell`, or None."""
        by_node = cell.exporter == "node"
        if self.spec.torch is None and not by_node:
            return f"{self.name} exists in ONNX alone, so that torch cannot export it; choose a cell such as " \
                f"node-opset18-ort{cell.ort}"  # fmt: skip
        if self.spec.torch is not None and by_node:
            return f"{self.name} has a torch operator, from which its models are exported; choose a cell of torch"
        if cell.torch and self.spec.torch and self.spec.torch.overrides and not overridden_in(self.spec, cell.torch):
            return f"it overrides nothing that torch {cell.torch} has; widen first= and last= of `overrides` in " \
                f"ops/{self.name}/spec.py"  # fmt: skip
        if cell.exporter == "legacy" and has_string_lists(self.spec):
            return "torch's legacy exporter traces no list of strings (1.13 to 2.15: 'unsupported input list type: " \
                "str'); choose a cell of the dynamo exporter"  # fmt: skip
        if cell.exporter == "legacy" and has_onnx_types(self.spec):
            return "torch's legacy exporter writes no opset from 21 on, where Cast takes int4 and uint4; choose a " \
                "cell of the dynamo exporter"  # fmt: skip
        if cell.opset < self.spec.min_opset:
            return f"its minimum opset is {self.spec.min_opset}; choose a higher opset, or lower min_opset in " \
                f"ops/{self.name}/spec.py"  # fmt: skip
        return None

    def why_unreadable(self, cell: Cell) -> str | None:
        """Return why a cell's ONNX Runtime rejects the models of the operator, or None."""
        if reason := why_unreadable(cell):
            return reason
        if has_string_lists(self.spec) and older(cell.ort, STRING_LISTS_SINCE):
            return f"ONNX Runtime {cell.ort} gives no kernel a list of strings; {STRING_LISTS_SINCE} is the first"
        return None

    def run_by(self, ort: str) -> Operator:
        """Return the operator with `unsupported` in each model with a dtype that an ONNX Runtime does not carry."""

        def model_of(model: Model) -> Model:
            why = self.why_not_carried(model_dtypes(self.spec, model), ort)
            return replace(model, unsupported=model.unsupported or why) if why else model

        return replace(self, models=tuple(map(model_of, self.models))) if has_four_bits(self.spec) else self

    def why_not_carried(self, dtypes: Collection[str], ort: str) -> str:
        """Return which dtypes of a model an ONNX Runtime does not carry, or does not cast, or ""."""
        if has_onnx_types(self.spec) and older(ort, FOUR_BITS_CAST_SINCE):
            return f"ONNX Runtime {ort} casts no int4 and no uint4; {FOUR_BITS_CAST_SINCE} does"
        lacking = [dtype for dtype in FOUR_BITS if dtype in dtypes]
        if not lacking or not older(ort, SINCE["int4"]["ort"]):
            return ""
        return f"ONNX Runtime {ort} carries no {', '.join(lacking)}; {SINCE['int4']['ort']} is the first"

    def at(self, lowering: Lowering, opset: int) -> Operator:
        """Return the operator with `unsupported` in each model that the lowering does not support at the opset."""
        if not any(model.min_opset for model in self.models):
            return self

        def model_at(model: Model) -> Model:
            first = model.min_opset.get(lowering, opset)
            return replace(model, unsupported=f"{lowering} from opset {first} on") if opset < first else model

        return replace(self, models=tuple(map(model_at, self.models)))

    @property
    def cell_condition(self) -> list[Any]:
        """The fields of the declaration that `has` depends on, as JSON data."""
        spec = self.spec
        overrides = as_data(spec.torch and spec.torch.overrides)
        return [list(spec.lowerings), spec.min_opset, overrides, spec.torch is None, has_string_lists(spec)]

    def has(self, lowering: str, cell: Cell) -> bool:
        """Return whether a lowering of the operator can be verified in `cell`."""
        return (
            lowering in self.spec.lowerings
            and not self.unavailable_reason(cell)
            and not why_unsupported(cell.exporter, cell.opset, cell.torch)
        )

    def cells(self, cells: Iterable[Cell]) -> tuple[Cell, ...]:
        """Return those of `cells` in which the operator is verified."""
        return tuple(cell for cell in cells if self.unavailable_reason(cell) is None)


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The operators of a project: those that can be used, and the mistakes of each that cannot, by its `shown_name`."""

    operators: tuple[Operator, ...]
    failed: Mapping[str, tuple[str, ...]]


def operator_names(paths: Paths) -> tuple[str, ...]:
    """Return the folders of ops/ that are operators, sorted, also those that cannot be read."""
    if not paths.ops.is_dir():
        return ()
    return tuple(sorted(p.name for p in paths.ops.iterdir() if source_files.is_operator(p)))


def shown_name(folder: str) -> str:
    """Return the name of a folder as it names a failed operator: in a step, a log and a terminal."""
    return re.sub(r"[^A-Za-z0-9_.-]", "?", folder if len(folder) <= 100 else f"{folder[:97]}...")


def load_operators(paths: Paths, *, checked: bool = False) -> tuple[Operator, ...]:
    """Load all operators in this process. Raises SpecError with every mistake of every file. `checked`: as for one."""
    found = declared([(name, *read(paths, name, checked=checked)) for name in operator_names(paths)])
    if found.failed:
        raise SpecError("\n".join(dict.fromkeys(line for lines in found.failed.values() for line in lines)))
    return found.operators


def load_operator(paths: Paths, name: str, *, checked: bool = False) -> Operator:
    """Load one operator in this process. Raises UsageError for an unknown name, SpecError for mistakes in its files.

    `checked`: another process has found no mistake in these files; then they are only executed, in half of the time.
    """
    names = operator_names(paths)
    if name not in names:
        raise unknown_operator(name, map(shown_name, names))
    operator, mistakes = read(paths, name, checked=checked)
    if operator is None:
        raise SpecError("\n".join(mistakes))
    return operator


def unknown_operator(name: str, names: Iterable[str]) -> UsageError:
    """Return the error for a name that is not one of `names`."""
    if name.startswith("-"):  # doit takes what follows an operator for operators
        return UsageError(f"{name!r} is taken for an operator: options come before operators")
    names = tuple(names)
    allowed = ", ".join(names) or "none; make ops/<name>/spec.py"
    return UsageError(f"no operator {name!r} in ops/, there is: {allowed}{did_you_mean(name, names)}")


def declared(folders: Iterable[tuple[str, Operator | None, Sequence[str]]]) -> Declared:
    """Return what follows from the folders of ops/, each with its operator or its mistakes: names that several
    operators declare, and operators that use a failed one, are mistakes too."""
    operators: dict[str, Operator] = {}
    failed: dict[str, list[str]] = {}
    for folder, operator, wrong in folders:
        if operator:
            operators[folder] = operator
        else:
            failed.setdefault(shown_name(folder), []).extend(wrong)
    for names, mistake in clashes([*operators.values()]):
        for name in names:
            failed.setdefault(name, []).append(mistake)
    operators = {name: operator for name, operator in operators.items() if name not in failed}
    for name, mistake in [*_uses(operators, failed)]:
        failed.setdefault(name, []).append(mistake)
        operators.pop(name, None)
    while users := [(o.name, *used) for o in operators.values() for used in _needed(o.spec) if used[1] in failed]:
        for name, field, used in users:
            why = f"ops/{name}/spec.py: {field}: {used!r} cannot be used: {failed[used][0]}"
            failed.setdefault(name, []).append(why)
            operators.pop(name, None)
    return Declared(operators=tuple(operators.values()), failed={name: tuple(failed[name]) for name in sorted(failed)})


def _needed(spec: OpSpec) -> Iterator[tuple[str, str]]:
    """Yield the other operators that one needs, each with the field that names it."""
    yield from (("uses", used) for used in spec.uses)
    if name := backward_of(spec):
        yield "torch.backward", name


def _uses(operators: Mapping[str, Operator], failed: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the operators that need one that does not exist or that does not fit, each with the mistake."""
    for name, operator in operators.items():
        for field, used in _needed(operator.spec):
            if used not in operators and used not in failed:
                why = f"no operator {used!r} in ops/{did_you_mean(used, operators)}"
                yield name, f"ops/{name}/spec.py: {field}: {why}"
            elif used in operators and field == "torch.backward":
                found = backward_mistakes(operator.spec, operators[used].spec)
                yield from ((name, f"ops/{name}/spec.py: {field}: {used!r} does not fit: {why}") for why in found)
            elif used in operators and operators[used].spec.uses:
                yield name, f"ops/{name}/spec.py: {field}: {used!r} has no node of its own, because it uses others"


def read(
    paths: Paths, name: str, at: Callable[[str], object] = len, *, checked: bool = False
) -> tuple[Operator | None, list[str]]:
    """Return the operator of a folder in ops/, or None and its mistakes, whatever its files raise.

    `at` is called with each file before it is executed; the default, `len`, has no effect.
    """
    try:
        operator, mistakes = _read(paths, name, at, checked=checked)
    except BaseException as error:  # such as RecursionError for values that are nested 1,000 times
        operator, mistakes = None, [f"ops/{name}: its declaration cannot be checked: {_text(error)}"]
    return operator, [printable(line) for line in mistakes]


def _read(paths: Paths, name: str, at: Callable[[str], object], *, checked: bool) -> tuple[Operator | None, list[str]]:
    if not validation.NAME.fullmatch(name):
        return None, [f"ops/{name}: the folder has the operator's name, allowed: {validation.NAMES}. Rename it"]
    spec, mistakes = take(paths, paths.spec(name), "SPEC", OpSpec, at)
    models, more = take(paths, paths.cases(name), "MODELS", tuple, at)
    mistakes += more
    written = frozenset(file for file in HANDWRITTEN if paths.handwritten(name, file).is_file())
    if not checked:
        mistakes += _mistakes(paths, name, spec, models, written)
    if mistakes:
        return None, mistakes
    published = published_schema.versions(paths, name)
    spec = replace(spec, tolerances=_plain_tolerances(spec))
    return Operator(spec=spec, models=models, handwritten_files=written, published=published), []


def _plain_tolerances(spec: OpSpec) -> Mapping[Lowering, Mapping[DType, Tolerance]]:
    """Return the tolerances as plain numbers: one of a derived class may be another number where it is compared."""

    def plain(limit: float) -> float:
        return float.__float__(limit) if isinstance(limit, float) else int.__int__(limit)

    return {
        lowering: {d: Tolerance(rtol=plain(t.rtol), atol=plain(t.atol)) for d, t in by_dtype.items()}
        for lowering, by_dtype in spec.tolerances.items()
    }


def _mistakes(paths: Paths, name: str, spec: Any, models: Any, written: frozenset[str]) -> list[str]:
    """Return the mistakes in what the files of an operator define: an OpSpec or None, a tuple or None."""
    spec_path, cases_path = paths.spec(name), paths.cases(name)
    mistakes = [*source_files.mistakes(paths, name)]
    sound = {}
    for path, value in ((spec_path, spec), (cases_path, models)):
        if value is not None:
            wrong = list(validation.structure(value, "" if value is spec else "MODELS"))
            mistakes += lines(paths, path, wrong)
            sound[path] = all(m.usable for m in wrong)
    if sound.get(spec_path):
        mistakes += lines(paths, spec_path, validation.declaration(spec, name))
        mistakes += [f"native/{name}/{m.field}: {m.text}" for m in validation.handwritten_files(spec, written)]
        mistakes += published_schema.mistakes(paths, spec) if spec.name == name else []
        if sound.get(cases_path):
            mistakes += lines(paths, cases_path, validation.cases(spec, models))
        if (spec.torch is None or spec.torch.overrides) and paths.torch_op(name).is_file():
            mistakes.append(_useless(paths, spec))
    return mistakes


def take(paths: Paths, path: Path, variable: str, kind: type, at: Callable[[str], object]) -> tuple[Any, list[str]]:
    """Execute a file and return its `variable`, or None and the mistakes."""
    shown = path.relative_to(paths.root)
    try:
        at(str(shown))
        module = load_module(path, path.stem)
    except BaseException as error:  # user code can raise anything, SystemExit too; report it with its line
        if isinstance(error, OSError) and error.filename == str(path):
            if isinstance(error, FileNotFoundError):
                return None, [f"{shown}: missing; it defines {variable}"]
            return None, [f"{shown}: cannot be read: {error.strerror}; it is a file that defines {variable}"]
        why = _text(error)
        if isinstance(error, ModuleNotFoundError) and str(error.name).partition(".")[0] == "pipeline":
            why = "imports 'pipeline', which is 'opmatrix' since format 1. Write `from opmatrix.spec import ...`"
        return None, [f"{shown}:{line_in(path, error) or 1}: {why}"]
    value = getattr(module, variable, None)
    if isinstance(value, kind):
        return value, []
    return None, [f"{shown}: found {type(value).__name__} as {variable}, allowed: {kind.__name__}"]


def _text(error: BaseException) -> str:
    try:
        text = one_line(error)
    except BaseException as other:
        text = f"its message cannot be made: {type(other).__name__}"
    return f"{type(error).__name__}: {text}".removesuffix(": ")


def _useless(paths: Paths, spec: OpSpec) -> str:
    why = "torch has its own operator, with its own gradient" if spec.torch else "torch does not have this operator"
    return f"{paths.torch_op(spec.name).relative_to(paths.root)}: found a file that nothing would run: {why}, as " \
        "spec.py says. Remove it, or declare an operator of your own in `torch`"  # fmt: skip


def lines(paths: Paths, path: Path, mistakes: Iterable[Mistake]) -> list[str]:
    """Return a line for each mistake; equal ones in several places are one line."""
    shown = path.relative_to(paths.root)
    fields: dict[str, list[str]] = {}
    for mistake in mistakes:
        fields.setdefault(mistake.text, []).append(mistake.field)
    result = []
    for text, (first, *others) in fields.items():
        more = f" and {len(others) - _NAMED} more" if len(others) > _NAMED else ""
        also = f". Also {', '.join(others[:_NAMED])}{more}" if others else ""
        result.append(f"{shown}: {first}: {text}{also}")
    return result


def _claimed(spec: OpSpec, field: str) -> dict[str, str]:
    """Return the names that an operator has in a framework, and what a name is for that no declaration contains."""
    if field == "onnx":
        return {f"{spec.onnx.domain}::{spec.onnx.op_type}": ""}
    if spec.torch is None:
        return {}
    called = callers_name(spec)
    return {torch_qualified(spec): f"the operator in its library that {called!r} calls"} | {called: ""}


def clashes(operators: Sequence[Operator]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield names that two operators declare, since each framework would keep only one of them: the operators that
    cannot be used, and the mistake."""
    for field in ("onnx", "torch"):
        seen: dict[str, tuple[str, str]] = {}
        for operator in operators:
            name, claimed = operator.spec.name, _claimed(operator.spec, field)
            taken = [(one, what) for one, what in claimed.items() if one in seen]
            seen = {one: (name, what) for one, what in claimed.items()} | seen
            if taken:  # the last one is what the declaration contains
                one, what = taken[-1]
                first, of_first = seen[one]
                mine, theirs = f", {what}," if what else "", f", as {of_first}" if of_first else ""
                taken_by = f"is taken by ops/{first}/spec.py{theirs}; rename one"
                yield (first, name), f"ops/{name}/spec.py: {field}: {one!r}{mine} {taken_by}"
    later = [(o.spec, found) for o in operators if (found := versions.versions(o.spec)[1:])]
    for spec, (other, found) in itertools.product([o.spec for o in operators], later):
        missing = [v for v in found if v not in spec.onnx.versions]
        if other is not spec and spec.onnx.domain == other.onnx.domain and missing:
            why = f"has a schema since {missing[0]} in that domain: a model of both imports it. Add it"
            yield (spec.name,), f"ops/{spec.name}/spec.py: onnx.versions: found {spec.onnx.versions}, and " \
                f"ops/{other.name}/spec.py {why}"  # fmt: skip
    own = {o.name for o in operators if is_own(OWN_ORT, o.spec, o.handwritten_files)}
    for spec in (o.spec for o in operators):
        for name in own.intersection(spec.uses):
            why = f"no other library can be linked of it; write native/{name}/kernel.h instead"
            yield (spec.name,), f"ops/{spec.name}/spec.py: uses: {name!r} has an ort.cc of its own, so that {why}"
