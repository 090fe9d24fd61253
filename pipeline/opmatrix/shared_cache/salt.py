"""What a result depends on in addition to the inputs and the configuration of its step: Python, the C library, the
installed packages, and the instructions that the processor has, up to the level that proofs use."""

from __future__ import annotations

import ast
import hashlib
import json
import platform
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata

from opmatrix.project import cpu_levels
from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES

# What steps import, apart from the requirements of these.
_IMPORTED = (*PACKAGES, "jinja2", "ninja", "pyelftools")


def digest(parts: Sequence[str]) -> str:
    """Return the digest of what `parts` returned."""
    return hashlib.sha256(json.dumps([*parts]).encode()).hexdigest()


def parts(paths: Paths, environment: str | None) -> list[str]:
    """Return such as ``CPython 3.11.7``, and each package with its version, of an environment: None is the main one,
    else such as "torch2.9"."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    packages = _installed_in(paths, environment) if environment else _reachable(paths)
    libc = " ".join(platform.libc_ver())  # its libm computes what kernels and references call
    return [python, libc, level(), *sorted(packages)]


def level() -> str:
    """Return the level of instructions to which proofs are pinned: x86-64-v3 also on a processor with more, so that
    the machines of a team share results. `opmatrix.engine.server_main` keeps NumPy and torch at it."""
    machine = platform.machine()
    if machine != "x86_64":
        return machine
    return cpu_levels.name(min(3, max(cpu_levels.of_processor(), default=2)))


def _installed_in(paths: Paths, environment: str) -> list[str]:
    """Return the packages of an environment of the matrix, which holds nothing else than what its lock names. Where it
    is not made, return those of the machine that made it, which the shared cache has."""
    folders = paths.environment(environment).glob("lib/python*/site-packages/*.dist-info")
    if packages := [folder.name.removesuffix(".dist-info") for folder in folders]:
        return packages
    with suppress(FileNotFoundError):
        return paths.installed_packages(environment).read_text(encoding="utf-8").splitlines()
    return []


def _reachable(paths: Paths) -> list[str]:
    """Return the packages that steps and operators import, with what these require, as ``name version``.

    Not all that is installed: an editor's packages change no result.
    """
    found: dict[str, str] = {}
    waiting = [*_IMPORTED, *_imported_by_operators(paths)]
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # for another Python or system
            continue
        found[name] = distribution.version
        for text in distribution.requires or ():
            condition = text.partition(";")[2]
            if "extra" not in condition and (required := re.match(r"[\w.-]+", text)):
                waiting.append(required[0])
    return [f"{name} {version}" for name, version in found.items()]


def _imported_by_operators(paths: Paths) -> set[str]:
    """Return the distributions whose modules the Python files in ops/ import."""
    modules: set[str] = set()
    for path in paths.ops.glob("*/*.py"):
        try:
            nodes = [*ast.walk(ast.parse(path.read_bytes()))]
        except (SyntaxError, ValueError):  # then its operator cannot be used
            continue
        modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        modules |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module and not n.level}
    unknown = {name.partition(".")[0] for name in modules} - {*_IMPORTED, "opmatrix", *sys.stdlib_module_names}
    return {name for module in unknown for name in _distributions().get(module, ())} if unknown else set()


@cache
def _distributions() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())
