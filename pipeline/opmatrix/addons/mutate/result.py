"""What became of a mutant, kept with the digests of all that it depends on, so that a repeated run tries what
changed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, get_args

from opmatrix.basics.files import write_text
from opmatrix.declaration.load import Operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.project.settings import Versions
from opmatrix.records import code_hash
from opmatrix.records.code_hash import STAGE_MODULES
from opmatrix.spec import as_data
from opmatrix.toolchain.find import Toolchain

Outcome = Literal["killed", "survived", "equivalent", "invalid", "stopped"]
"""``equivalent``: it compiles to equal objects. ``invalid``: it does not compile. ``stopped``: it exceeded a limit of
time or memory. None of these three counts."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """`gate`: which gate found it, the last one of a survivor. `case`: the input that killed it, if known. `why`: the
    first line of the gate's message. `cpu`: the CPU seconds of its gates. `part`: the part of register
    that killed it. `depends`: digests by name of all that the outcome depends on."""

    outcome: Outcome
    gate: str = ""
    part: str = ""
    case: str = ""
    why: str = ""
    cpu: float = 0.0
    depends: Mapping[str, str] = field(default_factory=dict)


def read(path: Path) -> dict[str, Result]:
    """Return the results in a file of `write` by the keys of mutants: none where it is missing or damaged."""
    try:
        found = {str(key): Result(**data) for key, data in json.loads(path.read_text(encoding="utf-8")).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return found if all(result.outcome in get_args(Outcome) for result in found.values()) else {}


def write(path: Path, results: Mapping[str, Result]) -> None:
    """Write all results, a line for each."""
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(asdict(results[key]))}" for key in sorted(results))
    write_text(path, f"{{\n{lines}\n}}\n")


# The modules that compile and judge mutants.
_JUDGES = ("opmatrix.addons.mutate.torch_gate", "opmatrix.addons.mutate.gates", *(
    STAGE_MODULES[stage] for stage in ("register", "verify", "ort-fuzz", "races", "export", "compare-exports")
))  # fmt: skip
_CASE = "case "  # before the name of a case
_COMPILED = ("mutant", "compiler")
_JUDGED = ("mutant", "compiler", "gates", "declaration")
_ALL = (*_JUDGED, "cases", "reference", "data", "drawn", "models", "python")


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The digests of an operator's files, declaration and judges as they are now, by name."""

    paths: Paths
    operator: Operator
    cells: Sequence[Cell]
    toolchain: Toolchain
    versions: Versions

    def of(self, outcome: str, *, mutated: str, case: str = "", part: str = "") -> dict[str, str]:
        """Return what an outcome depends on: a kill by a case needs only that case, so that another case, or other
        drawn inputs, do not repeat it. `mutated` is the mutated file, `part` what of register killed the mutant."""
        if outcome in ("invalid", "equivalent"):
            names: Iterable[str] = _COMPILED
        elif part == "kernel":
            names = (*_JUDGED, f"{_CASE}{case}")
        elif part == "search":
            names = (*_JUDGED, "drawn", "reference")
        else:
            names = _ALL
        return {name: self.digest(name, mutated) for name in names}

    def digest(self, name: str, mutated: str) -> str:
        """Return the digest of one name; of a case that is gone ""."""
        if name == "mutant":
            return hashlib.sha256(mutated.encode()).hexdigest()[:16]
        if name.startswith(_CASE):
            return self._cases.get(name.removeprefix(_CASE), "")
        return self._shared.get(name, "")

    def hold(self, result: Result, mutated: str) -> bool:
        """Return whether all that a result depends on is as it was."""
        return all(self.digest(name, mutated) == digest for name, digest in result.depends.items())

    @property
    def races_key(self) -> str:
        """The digest of all that the program for ThreadSanitizer depends on besides the kernel."""
        names = ("compiler", "drawn", "gates", "declaration", "cases", "reference")
        return _digest([], "".join(self._shared[name] for name in names))

    @cached_property
    def _shared(self) -> Mapping[str, str]:
        paths, name = self.paths, self.operator.name
        other = [p for p in paths.native_sources(name) if p != paths.kernel(name)]
        generated = sorted(p for p in paths.generated(name).glob("*") if p.suffix in (".h", ".cc"))
        judges = sorted({path for module in _JUDGES for path in code_hash.reached(module)})
        own = sorted(p for p in paths.op(name).rglob("*.py") if p.name not in ("cases.py", "reference.py", "spec.py"))
        return {
            "compiler": _digest([*other, *generated], self.toolchain.identity),
            "gates": _digest(judges, json.dumps(asdict(self.versions))),
            "declaration": _digest([], json.dumps(as_data(self.operator.spec), sort_keys=True)),
            "cases": _digest([], json.dumps([as_data(model) for model in self.operator.models], sort_keys=True)),
            "reference": _digest([paths.reference(name)]),
            "data": _digest([paths.data_manifest(name)]),
            "drawn": _digest([paths.drawn_inputs(name)]),
            "models": _digest([paths.manifest(name, "custom", cell) for cell in self.cells]),
            "python": _digest([*own, *sorted(paths.kernel(name).parent.glob("*"))]),
        }

    @cached_property
    def _cases(self) -> Mapping[str, str]:
        return {
            case.name: _digest(sorted(self.paths.data(self.operator.name, model.name, index).glob("*.pb")))
            for model in self.operator.models
            for index, case in enumerate(model.cases)
        }


def _digest(paths: Iterable[Path], text: str = "") -> str:
    """Return a digest of files, of which some may be missing, and of a string."""
    found = hashlib.sha256(text.encode())
    for path in paths:
        found.update(f"\0{path.name}\0".encode())
        found.update(hashlib.sha256(path.read_bytes()).digest() if path.is_file() else b"")
    return found.hexdigest()[:16]
