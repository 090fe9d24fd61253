"""How templates are filled, wherever they stand. Pure."""

from __future__ import annotations

import jinja2


def environment(package: str) -> jinja2.Environment:
    """Return what fills the templates of a package; a name that a template uses and nobody gave is an error."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
