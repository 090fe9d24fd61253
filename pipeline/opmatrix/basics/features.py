"""The optional features: what each folder of `opmatrix.addons` adds to the core, which imports none of them.

`opmatrix.addons` has one row for each, of strings alone, so that reading the table costs nothing: what a row names is
imported where it is used. A feature that is broken, or not there, takes nothing but itself away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

from opmatrix.basics.errors import UsageError, one_line

TABLE = "opmatrix.addons"


class Feature(NamedTuple):
    """What an addon adds. Objects are named as ``opmatrix.addons.bench.command:Bench``.

    `commands`: doit's, by name; `anywhere`: those of them that need no project. `stages`: the modules of their stages,
    by name; `stage_table`: the module that has their arguments as `STAGES`, and `SPECIAL`. `servers`: what a fork
    server imports, and the functions that it calls once, by its name. `provides`: what the core asks for by name, such
    as a section of the report: a function of the project's paths and the names of operators.
    """

    commands: Mapping[str, str] = {}
    anywhere: tuple[str, ...] = ()
    stages: Mapping[str, str] = {}
    stage_table: str = ""
    servers: Mapping[str, tuple[str, ...]] = {}
    provides: Mapping[str, str] = {}


@cache
def features() -> Mapping[str, Feature]:
    """Return the features by name; none where the folder of addons is missing."""
    try:
        table: Mapping[str, Feature] = import_module(TABLE).FEATURES
    except ModuleNotFoundError as error:
        if error.name != TABLE:
            raise
        return {}
    return table


def load(place: str) -> Any:
    """Return the object at ``module:name``, or a module. Raises UsageError if it cannot be imported."""
    module, _, name = place.partition(":")
    try:
        found = import_module(module)
        return getattr(found, name) if name else found
    except Exception as error:  # what is broken may raise anything
        addon = module.removeprefix(f"{TABLE}.").partition(".")[0]
        raise UsageError(
            f"the addon {addon!r} of opmatrix cannot be imported: {one_line(error)}. Install opmatrix anew: "
            "pip install --force-reinstall opmatrix"
        ) from error


def added(kind: Literal["commands", "stages", "servers", "provides"]) -> dict[str, Any]:
    """Return what the features add of one kind, by name."""
    return {name: places for feature in features().values() for name, places in getattr(feature, kind).items()}


def provided(name: str, *, optional: bool = False) -> Any:
    """Return what a feature provides under a name. If none does, return None if that is `optional`, else raise
    UsageError."""
    place = added("provides").get(name)
    if not place and not optional:
        raise UsageError(f"no addon of this opmatrix provides {name!r}; install opmatrix with all its addons")
    return load(place) if place else None


def modules_of(*names: str) -> list[str]:
    """Return the modules of what features provide under these names: no import statement names them."""
    places = added("provides")
    return [places[name].partition(":")[0] for name in names if name in places]
