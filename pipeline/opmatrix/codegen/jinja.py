"""The settings of Jinja for all templates."""

from __future__ import annotations

import jinja2


def environment(package: str) -> jinja2.Environment:
    """Return the Jinja environment for the templates of a package; an undefined variable is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
