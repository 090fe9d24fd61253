"""Names and labels of the matrix's tox environments: ``torch2.9``, ``torch2.9-opset18``, ``ort1.18``.

Used by opmatrix.environments.tox_plugin. Does not import tox.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.project.cells import MADE, TORCH_EXPORTERS, Choice, Exporter, why_no_exporter

_NAME = re.compile(r"torch(?P<torch>[^-]*)(-opset(?P<opset>[^-]*))?|ort(?P<ort>[^-]*)")


@dataclass(frozen=True, kw_only=True)
class Factors:
    """The factors that tox names may have: versions with an environment, and the default opsets."""

    torches: Sequence[str]
    orts: Sequence[str]
    opsets: Sequence[int]

    @classmethod
    def of(cls, *, torches: Sequence[str], orts: Sequence[str], default: Mapping[Exporter, Iterable[int]]) -> Factors:
        opsets = {opset for exporter in TORCH_EXPORTERS for opset in default[exporter]}
        return cls(torches=torches, orts=orts, opsets=sorted(opsets))

    def names(self) -> Iterator[str]:
        """Yield the name of every legal environment: each torch with its opsets, then each ONNX Runtime."""
        for torch in self.torches:
            yield f"torch{torch}"
            yield from (f"torch{torch}-opset{o}" for o in self.opsets if not why_no_exporter(o, [torch]))
        yield from (f"ort{ort}" for ort in self.orts)

    def choice(self, name: str) -> Choice | None:
        """Return the cells, or None for a foreign name. Raises UsageError with why a version or opset is illegal."""
        if not (found := _NAME.fullmatch(name)):
            return None
        torch, opset, ort = found["torch"], found["opset"], found["ort"]
        if ort is not None:
            self._require_known(name, ort, self.orts, "ort")
            return Choice(torch=MADE, ort=ort)
        self._require_known(name, torch, self.torches, "torch")
        if opset is None:
            return Choice(torch=torch)
        if not opset.isdecimal():
            raise UsageError(f"{name}: found opset {opset!r}, allowed: a number")
        if reason := why_no_exporter(int(opset), [torch]):
            raise UsageError(f"{name}: {reason}")
        if int(opset) not in self.opsets:
            known = ", ".join(map(str, self.opsets))
            raise UsageError(f"{name}: opset {opset} is legal, and has no name in tox, which has {known} "
                             f"(pyproject.toml, [tool.opmatrix.opsets]); use doit torch={torch} "
                             f"opsets={opset}")  # fmt: skip
        return Choice(torch=torch, opsets=opset)

    def _require_known(self, name: str, version: str, known: Sequence[str], factor: str) -> None:
        if version not in known:
            allowed = ", ".join(f"{factor}{v}" for v in known)
            raise UsageError(f"{name}: there is no {factor}{version}; allowed: {allowed}{did_you_mean(version, known)}")


def labels(name: str, *, main: str) -> tuple[str, ...]:
    """Return an environment's tox labels, none with an opset: its torch covers it. `main` is the main torch."""
    if "-opset" in name:
        return ()
    kind = "torch" if name.startswith("torch") else "ort"
    return ("full", kind, "quick") if name == f"torch{main}" else ("full", kind)
