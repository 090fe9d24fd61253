"""Run a command by hand in the environment that has its torch or its ONNX Runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, NoReturn

from opmatrix.errors import UsageError, missing
from opmatrix.project.paths import PACKAGE, Paths
from opmatrix.version import minor

Factor = Literal["torch", "ort"]
_PACKAGES = {"torch": "torch", "ort": "onnxruntime"}


def in_environment(layout: Paths, arguments: Sequence[str], *, factor: Factor, version: str) -> None:
    """Start the command anew in another environment, unless this one has the version. Raises UsageError where there
    is none."""
    if _running(factor) == version:
        return
    name = f"{factor}{version}"
    if not layout.python(name).is_file():
        wanted = f"this environment has {_PACKAGES[factor]} {_running(factor)}, not {version}, and environment {name}"
        raise UsageError(missing(wanted, run=f"python -m opmatrix environment {name}", problem="is not made"))
    if Path(sys.prefix) == layout.environment(name):
        raise UsageError(f"environment {name} has {_PACKAGES[factor]} {_running(factor)}. Remove "
                         f"{layout.environment(name)}, and run `doit {factor}={version}`")  # fmt: skip
    _start(layout, name, arguments)


def _running(factor: Factor) -> str:
    """Return the version that is imported, or would be."""
    package = _PACKAGES[factor]
    imported = sys.modules.get(package)
    return minor(imported.__version__ if imported else metadata.version(package))


def _start(layout: Paths, environment: str, arguments: Sequence[str]) -> NoReturn:
    sys.stdout.flush()
    python = str(layout.python(environment))
    variables = {**os.environ, **python_path(layout, environment)}
    os.execve(python, [python, "-m", "opmatrix", *arguments], variables)


def python_path(layout: Paths, environment: str) -> dict[str, str]:
    """Return what tells the Python of another environment where this package is, and see to it that it is there.

    It is alone in its folder: where it is installed, its neighbours are the packages of the main environment.
    """
    link = layout.package_link(environment)
    if not link.is_symlink() or link.readlink() != PACKAGE:
        link.parent.mkdir(exist_ok=True)
        temporary = link.with_name(f".{link.name}.{os.getpid()}")
        temporary.symlink_to(PACKAGE)
        temporary.replace(link)
    return {"PYTHONPATH": os.pathsep.join([str(link.parent), *filter(None, [os.environ.get("PYTHONPATH")])])}
