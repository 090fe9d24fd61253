"""Start a stage's command again in the environment that has its version of torch or ONNX Runtime."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Literal, NoReturn

from opmatrix.basics.errors import UsageError, missing
from opmatrix.basics.files import write_link
from opmatrix.basics.version import minor
from opmatrix.project.paths import MAIN_PYTHON, PACKAGE, Paths

Factor = Literal["torch", "ort"]
_PACKAGES = {"torch": "torch", "ort": "onnxruntime"}
_NEEDS = {"torch": "2 GB of disk and half a minute or more", "ort": "0.2 GB of disk and some seconds"}


def in_environment(paths: Paths, arguments: Sequence[str], *, factor: Factor, version: str) -> None:
    """Start the command again in another environment, unless this one has the version. Raises UsageError when there is
    no such environment."""
    if _running(factor) == version:
        return
    name = f"{factor}{version}"
    if not paths.python(name).is_file():
        wanted = f"this environment has {_PACKAGES[factor]} {_running(factor)}, not {version}; environment {name}"
        how = missing(wanted, run=f"python -m opmatrix environment {name}", problem="has not been created yet")
        raise UsageError(f"{how}\nIt takes the network, {_NEEDS[factor]}. Then repeat this command.")
    if Path(sys.prefix) == paths.environment(name):
        raise UsageError(f"environment {name} has {_PACKAGES[factor]} {_running(factor)}. Remove "
                         f"{paths.environment(name)}, and run `doit {factor}={version}`")  # fmt: skip
    sys.stdout.flush()
    python = str(paths.python(name))
    os.execve(python, [python, "-m", "opmatrix", *arguments], {**os.environ, **python_path(paths, name)})


def again(arguments: Sequence[str]) -> NoReturn:
    """Start a stage's command in place of this process."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "opmatrix", *arguments])


def _running(factor: Factor) -> str:
    """Return the version that is imported or, before an import, installed."""
    package = _PACKAGES[factor]
    imported = sys.modules.get(package)
    return minor(imported.__version__ if imported else metadata.version(package))


def python_path(paths: Paths, environment: str) -> dict[str, str]:
    """Return the variable PYTHONPATH with which another environment's Python imports this package: a folder with only a
    link to it, because the package's own folder may contain all packages of the main environment. And the Python of the
    main environment, whose torch evaluates a reference in torch."""
    link = paths.package_link(environment)
    write_link(link, str(PACKAGE))
    return {
        "PYTHONPATH": os.pathsep.join([str(link.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        MAIN_PYTHON: os.environ.get(MAIN_PYTHON, sys.executable),
    }
