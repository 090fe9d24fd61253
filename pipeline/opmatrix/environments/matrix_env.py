"""Make an environment of the matrix, with another torch or ONNX Runtime: ``.venv-matrix/torch2.9``.

It contains what steps import and no tools: doit, compiler and report run in the main environment. Its pins are in
requirements/. As in the main environment, the stamp is written last, and an environment without one is made again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from opmatrix.basics.errors import Cause, NoEnvironmentError, UsageError, one_line
from opmatrix.basics.files import write_text
from opmatrix.environments import bootstrap, pip_install
from opmatrix.environments.pip_install import SetupError, VenvPaths, say
from opmatrix.project.cells import environment_names, rows
from opmatrix.project.paths import Paths

_NEEDED_BYTES = {"torch": 2_500_000_000, "ort": 300_000_000}
# What an environment must be able to import.
_IMPORTS = {"torch": "torch, onnx, onnxscript, numpy, hypothesis", "ort": "onnxruntime, onnx, numpy"}


def run(project: Paths, name: str) -> None:
    """Install the environment `name`, such as "torch2.9", where it is missing or has other pins, and write the version
    of each package that keys of steps contain.

    Raises NoEnvironmentError with the reason, and UsageError for an unknown environment.
    """
    if name not in (names := environment_names()):
        raise UsageError(f"no environment {name!r}; allowed: {', '.join(names)}")
    if lost := [path for path in project.pins(name) if not path.is_file()]:
        raise UsageError(f"environment {name}: its pins are missing, {lost[0].relative_to(project.root)}")
    folder = project.environment(name)
    relative = str(folder.relative_to(project.root))
    factor = _factor(name)
    paths = VenvPaths(root=project.root, name=relative, needed=_NEEDED_BYTES[factor], pins=project.pins(name))
    paths.lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        row = (rows().torch if factor == "torch" else rows().ort)[name.removeprefix(factor)]
        python = find_python(name, newest=row.python, environ=os.environ)
        wanted = {path.name: path.read_bytes() for path in project.pins(name)} | {"made": _version(python).encode()}
        with bootstrap.only_one(paths.lock) as lock:
            if bootstrap.read_stamp(paths) != wanted:
                _make(name, paths, python=python, lock=lock)
                bootstrap.write_stamp(paths, wanted)
    except (SetupError, OSError, subprocess.CalledProcessError) as error:
        brief = error.brief if isinstance(error, SetupError) else one_line(error)
        raise NoEnvironmentError(f"environment {name}: {error}", cause=Cause(sentence=brief)) from error
    for package, version in installed(folder).items():
        write_text(project.installed_version(name, package), f"{version}\n")
    write_text(project.installed_packages(name), "".join(f"{package}\n" for package in packages(project, name)))


def packages(project: Paths, name: str) -> list[str]:
    """Return ``numpy-2.1.0`` for each package of an environment."""
    folders = project.environment(name).glob("lib/python*/site-packages/*.dist-info")
    return sorted(folder.name.removesuffix(".dist-info") for folder in folders)


def installed(environment: Path) -> dict[str, str]:
    """Return the version of every package of an environment, without running its Python."""
    sites = [str(site) for site in environment.glob("lib/python3.*/site-packages")]
    found = metadata.distributions(path=sites)
    return {re.sub(r"[-_.]+", "-", package.name).lower(): package.version for package in found}


def find_python(name: str, *, newest: str, environ: Mapping[str, str]) -> str:
    """Return a CPython from 3.11 to `newest`: the running one, or one on PATH. Raises SetupError."""
    last = int(newest.partition(".")[2])
    if sys.version_info[1] <= last:
        return sys.executable
    for number in range(last, 10, -1):
        python = shutil.which(f"python3.{number}", path=environ.get("PATH"))
        if python and _version(python) == f"3.{number}":
            return python
    allowed = "CPython 3.11" if last == 11 else f"CPython 3.11 to {newest}"
    raise SetupError(72, f"{name} has wheels for {allowed}, and no such Python is on PATH; this is "
                         f"{sys.version_info[0]}.{sys.version_info[1]}. Install one")  # fmt: skip


def _factor(name: str) -> str:
    return "torch" if name.startswith("torch") else "ort"


def _make(name: str, paths: VenvPaths, *, python: str, lock: int) -> None:
    bootstrap.check_machine()
    bootstrap.make_room(paths)
    say(f"making the environment in {paths.name} (Python {_version(python)})")
    subprocess.run([python, "-m", "venv", "--without-pip", "--symlinks", paths.environment], check=True)
    # The pip of the main environment, which installs for the other Python.
    pip = pip_install.Pip(paths=paths, command=(sys.executable, "-m", "pip", "--python", str(paths.python)), lock=lock)
    lock_file, *torch = paths.pins
    pip.install("--require-hashes", "--no-deps", "-r", str(lock_file))
    for pins in torch:  # a CPU build, which needs none of the dependencies of torch's other builds
        index = os.environ.get("OPMATRIX_TORCH_INDEX", pip_install.TORCH_INDEX)
        say(f"installing torch from {pip_install.without_password(index) or 'what pip is configured with'}")
        pip.install(*(("--index-url", index) if index else ()), "--no-deps", "-r", str(pins))
    _check_imports(name, paths)
    say(f"the environment is ready ({pip.elapsed()})")


def _check_imports(name: str, paths: VenvPaths) -> None:
    """Raise SetupError for an environment in which steps cannot start, such as one whose torch needs CUDA."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"ORT_DISABLE_TELEMETRY": "1"}
    command = [str(paths.python), "-c", f"import {_IMPORTS[_factor(name)]}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise SetupError(70, f"what was installed cannot be imported: {said}. Is it a CPU build? The log is "
                             f"'{paths.log}'")  # fmt: skip


def _version(python: str) -> str:
    """Return ``3.11`` for the path of an interpreter, or "" for another path."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", program], capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""
