"""Versions such as 2.13.0+cpu, by their leading numbers. `packaging.version` takes 3 ms to import, which each doit
command would pay."""

from __future__ import annotations


def numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers, which compare as versions do: 2.9 is older than 2.13."""
    return tuple(map(int, version.split(".")))


def minor(version: str) -> str:
    """Return ``2.13`` for ``2.13.0+cpu``: the part that names a cell."""
    return ".".join(version.split(".")[:2])


def older(version: str, than: str) -> bool:
    """Return whether one version, such as 2.9 or 2.9.1, is older than another, by major and minor."""
    return numbers(minor(version)) < numbers(minor(than))
