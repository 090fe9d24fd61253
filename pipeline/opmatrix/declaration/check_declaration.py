"""Print the mistakes in an operator's files, as doit finds them when it plans."""

from __future__ import annotations

from opmatrix.basics.errors import SpecError
from opmatrix.declaration.isolated import usable
from opmatrix.project.paths import Paths


def run(paths: Paths, *, name: str, planned: bool) -> None:
    """Raise SpecError with the mistakes of an operator. With `planned`, doit planned no other step of it, so this
    one fails even if the files are right by now."""
    usable(paths, [name])
    if planned:
        raise SpecError(f"ops/{name}: its files could not be used when doit planned, and can be by now. Run doit again")
    print(f"{name}: no mistake in its declaration and cases")
