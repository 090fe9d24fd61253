"""Compare versions such as 2.13.0+cpu by major and minor, without `packaging.version`, whose import takes 3 ms."""

from __future__ import annotations


def numbers(version: str) -> tuple[int, ...]:
    """Return ``(2, 13)`` for ``2.13``, which compares as a version does."""
    return tuple(map(int, version.split(".")))


def minor(version: str) -> str:
    """Return ``2.13`` for ``2.13.0+cpu``: the part that names a cell."""
    return ".".join(version.split(".")[:2])


def older(version: str, than: str) -> bool:
    """Return whether `version`, such as 2.9 or 2.9.1, is older than `than`, by major and minor."""
    return numbers(minor(version)) < numbers(minor(than))
