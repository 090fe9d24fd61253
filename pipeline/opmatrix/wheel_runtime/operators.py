"""The operators of a wheel. Needs neither torch nor onnx."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from opmatrix.spec import OpSpec


@dataclass(frozen=True, kw_only=True)
class Shipped:
    """One operator: its declaration, the package that holds its modules, and which of them there are."""

    spec: OpSpec
    package: str
    modules: tuple[str, ...]

    def module(self, name: str) -> ModuleType:
        """Import one of its modules; they need torch or onnx."""
        return importlib.import_module(f"{self.package}.{name}")


def load(package: str, modules: dict[str, tuple[str, ...]]) -> Sequence[Shipped]:
    """Return the operators of `package`, each with the `modules` that it has."""
    return [
        Shipped(
            spec=importlib.import_module(f"{package}.{name}.declaration").SPEC,
            package=f"{package}.{name}",
            modules=found,
        )
        for name, found in modules.items()
    ]
