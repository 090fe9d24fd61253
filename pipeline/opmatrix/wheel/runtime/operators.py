"""The operators of a wheel: their declarations and Python modules. Needs neither torch nor onnx."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType

from opmatrix.spec import OpSpec


@dataclass(frozen=True, kw_only=True)
class WheelOperator:
    """One operator: its declaration, the package of its modules, and their names."""

    spec: OpSpec
    package: str
    modules: tuple[str, ...]

    def module(self, name: str) -> ModuleType:
        """Import one of its modules, which needs torch or onnx."""
        return importlib.import_module(f"{self.package}.{name}")


def load(package: str, modules: dict[str, tuple[str, ...]]) -> Sequence[WheelOperator]:
    """Return the operators of `package`; `modules` has the names of their modules by operator."""
    return [
        WheelOperator(spec=importlib.import_module(f"{of}.declaration").SPEC, package=of, modules=found)
        for of, found in ((f"{package}.{name}", found) for name, found in modules.items())
    ]
