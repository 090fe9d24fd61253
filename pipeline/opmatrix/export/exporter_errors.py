"""Explain an exporter's errors: cause and fix, which its own messages do not name. `export` and `check` use it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from opmatrix.errors import one_line

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# The message of an exporter, and the fix. The first match is printed.
_REMEDIES: Mapping[str, str] = {
    r"Failed to convert 'dynamic_axes' to 'dynamic_shapes'": (
        "The dynamo exporter ran, which does not use symbolic functions: it is the default since torch 2.9, so always "
        "pass dynamo="
    ),
    r"No ONNX function found for <OpOverload\(op='([\w.]+)', overload='(\w+)'\)>": (
        r"No translation of \1.\2 was given: put it into the translation table (custom_translation_table=), keyed by "
        r"the overload torch.ops.\1.\2"
    ),
    r"Exporting the operator '(\S+?)' to ONNX opset version (\d+) is not supported": (
        r"No symbolic of \1 is registered at opset \2 or below: register it at the very opset that is asked for"
    ),
    r"object has no attribute 'to_function_proto'": (
        "torch 2.0 takes a node with the name of its torch operator for a function of onnxscript: take another torch"
    ),
    r"UnsupportedOperatorException: ([\w.]+)": (
        r"\1 has no fake kernel: register one with torch.library.register_fake, as the glue stage writes it to fake.py"
    ),
    r"You marked (\w+?)(?:_axis)? as dynamic but your code specialized it to be a constant \((\d+)\)": (
        r"torch.export takes the dynamic axis \1 for the constant \2, as it does where another size is the product of "
        r"dynamic axes: write None for it in `dynamic`, so that it is static"
    ),
}  # fmt: skip


# The dynamo exporter prints the failed step and how to report it before the exception itself.
_SUMMARY = re.compile(
    r"## Exception summary\s+<class '(?:[\w.]+\.)?(\w+)'>: (.*?)\s*(?:⬆️|\(Refer to the full stack|$)", re.DOTALL
)


def explain(error: Exception) -> str:
    """Return the fix, if it is known, and the type and message of an error, in one line without colours."""
    text = _COLOURS.sub("", f"{type(error).__name__}: {error}")
    summary = _SUMMARY.search(text)
    raised = f"it raised {one_line(f'{summary[1]}: {summary[2]}' if summary else text)}"
    for pattern, remedy in _REMEDIES.items():
        if match := re.search(pattern, one_line(text)):
            return f"{match.expand(remedy)}; {raised}"
    return raised
