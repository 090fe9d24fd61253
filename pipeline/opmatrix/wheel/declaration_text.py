"""A declaration as Python text: what a wheel holds of it. Pure."""

from __future__ import annotations

import dataclasses

from opmatrix.declaration.python_source import names, source
from opmatrix.spec import OpSpec


def render(spec: OpSpec, package: str) -> str:
    """Return a module that defines SPEC, with all that registering and exporting take from it.

    Tolerances are for those who test; kernel and headers concern compiling alone.
    """
    text = source(dataclasses.replace(spec, tolerances={}, kernel=None, headers=()))
    imports = f"from {package}._opmatrix.spec import {', '.join(names(text))}"
    return f'"""{escaped(spec.summary)}"""\n\n{imports}\n\nSPEC = {text}\n'


def escaped(text: str) -> str:
    """Return what `text` is between triple double quotes."""
    text = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'{text[:-1]}\\"' if text.endswith('"') else text
