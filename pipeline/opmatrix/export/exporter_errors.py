"""What an exporter's errors mean, and what to do about them: its own texts name no cause that a person can mend."""

from __future__ import annotations

import re
from collections.abc import Mapping

from opmatrix.errors import one_line

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# What an exporter says, and the remedy. The first that is found will do.
_REMEDIES: Mapping[str, str] = {
    r"Failed to convert 'dynamic_axes' to 'dynamic_shapes'": (
        "The dynamo exporter ran, which knows no symbolics: it is the default since torch 2.9, so always pass dynamo="
    ),
    r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>": (
        r"No translation of \1.\2 was given: put it into the translation table (custom_translation_table=), keyed by "
        r"the overload torch.ops.\1.\2"
    ),
    r"Exporting the operator '(\S+?)' to ONNX opset version (\d+) is not supported": (
        r"No symbolic of \1 is registered at opset \2 or below: register it at the very opset that is asked for"
    ),
    r"UnsupportedOperatorException: ([\w.]+)": (
        r"\1 has no fake kernel: register one with torch.library.register_fake, as the glue stage writes it to fake.py"
    ),
}  # fmt: skip


# The dynamo exporter tells first which of its steps failed and how to report that, and then what happened.
_SUMMARY = re.compile(
    r"## Exception summary\s+<class '(?:[\w.]+\.)?(\w+)'>: (.*?)\s*(?:⬆️|\(Refer to the full stack|$)", re.DOTALL
)


def explain(error: Exception) -> str:
    """Return what an error means in one line, where that is known, and then its kind and text, without colours."""
    text = _COLOURS.sub("", f"{type(error).__name__}: {error}")
    found = _SUMMARY.search(text)
    raised = f"it raised {one_line(f'{found[1]}: {found[2]}' if found else text)}"
    for pattern, remedy in _REMEDIES.items():
        if known := re.search(pattern, one_line(text)):
            return f"{known.expand(remedy)}; {raised}"
    return raised
