"""The versions of Python and packages, in each environment, that the verdicts of a report were computed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES
from opmatrix.verdict import Verdict
from opmatrix.version import minor, numbers

MAIN = "main"
Environments = Mapping[str, Mapping[str, str]]
"""Versions by package (and "python"), by the name of the environment."""


def read(layout: Paths, verdicts: Sequence[Verdict], main: Mapping[str, str]) -> Environments:
    """Return the versions of the main environment, `main`, and of those that the cells of `verdicts` need, in the order
    of the matrix. An environment that could not be made has no versions and is left out."""
    found = {MAIN: dict(main)}
    for factor, package in (("torch", "torch"), ("ort", "onnxruntime")):
        asked = dict.fromkeys(getattr(v.cell, factor) for v in verdicts)
        for version in sorted(filter(None, asked), key=numbers):
            name = f"{factor}{version}"
            if version != minor(main[package]) and (versions := _versions(layout, name)):
                found[name] = versions
    return found


def _versions(layout: Paths, name: str) -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        with suppress(FileNotFoundError):
            found[package] = layout.installed_version(name, package).read_text().strip()
    found = {package: version for package, version in found.items() if version}
    return {"python": _python(layout, name), **found} if found else {}


def _python(layout: Paths, name: str) -> str:
    """Return the version that venv recorded when it created the environment."""
    with suppress(FileNotFoundError):
        for line in (layout.environment(name) / "pyvenv.cfg").read_text().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "version":
                return value.strip()
    return "unknown"
