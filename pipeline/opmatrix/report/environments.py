"""The versions of what computed the verdicts of a report: of the main environment, and of each beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES
from opmatrix.verdict import Verdict
from opmatrix.version import minor, numbers

MAIN = "main"
Environments = Mapping[str, Mapping[str, str]]
"""Versions by package, and of Python, by the name of the environment."""


def read(layout: Paths, verdicts: Sequence[Verdict], main: Mapping[str, str]) -> Environments:
    """Return the main environment, whose versions are given, and the others that cells of `verdicts` need, in the order
    of the matrix. One that could not be made has no versions, and so is left out."""
    found = {MAIN: dict(main)}
    for factor, package in (("torch", "torch"), ("ort", "onnxruntime")):
        asked = dict.fromkeys(getattr(v.cell, factor) for v in verdicts)
        for version in sorted(filter(None, asked), key=numbers):
            name = f"{factor}{version}"
            if version != minor(main[package]) and (versions := _versions(layout, name)):
                found[name] = versions
    return found


def said(environments: Environments) -> Iterable[str]:
    """Yield a line for each environment: ``torch2.9: python 3.11.7, torch 2.9.1, ...``."""
    for name, versions in environments.items():
        yield f"{name}: {', '.join(f'{package} {version}' for package, version in versions.items())}"


def _versions(layout: Paths, name: str) -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(FileNotFoundError):
            found[package] = layout.installed_version(name, package).read_text().strip()
    there = {package: version for package, version in found.items() if version}
    return {"python": _python(layout, name), **there} if there else {}


def _python(layout: Paths, name: str) -> str:
    """Return the version that venv noted when it made the environment."""
    try:
        lines = (layout.environment(name) / "pyvenv.cfg").read_text().splitlines()
    except FileNotFoundError:
        return "unknown"
    noted = (line.partition("=") for line in lines)
    return next((value.strip() for key, _, value in noted if key.strip() == "version"), "unknown")
