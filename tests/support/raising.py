"""A function that raises, in place of one that a test replaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


def raising(error: BaseException) -> Callable[..., NoReturn]:
    """Return a function of any arguments that raises the error."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise error

    return refuse
