"""The accepted warnings of the exporters: any other warning is an error. Needs only the standard library."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from unittest import mock

LOGGERS = ("torch", "onnxscript", "onnx_ir")

ACCEPTED: Mapping[str, str] = {
    "You are using the legacy TorchScript-based ONNX export": (
        "torch 2.9 to 2.13: opmatrix requests the legacy exporter"
    ),
    "The feature will be removed. Please remove usage of this function": (
        "torch 2.6 to 2.13: the legacy exporter calls a deprecated function of its own"
    ),
    "`isinstance(treespec, LeafSpec)` is deprecated": (
        "torch 2.10 to 2.13: torch copies its own ExportedProgram through a deprecated class"
    ),
    "Missing annotation for parameter": (
        "torch 2.6 and 2.9: it takes the tensors of a translation, which have no annotation, for inputs: they are"
    ),
    "torchvision is not installed. Skipping torchvision::": (
        "torch 2.6 to 2.13: no operator needs the translations for torchvision's operators"
    ),
    "triton not found; flop counting will not work": (
        "torch 2.13 and 2.15: a build for CUDA without triton prints it when it imports its counter of operations: no "
        "export counts"
    ),
    "The shape inference of ": (
        "torch 1.13: it looks for a type before the symbolic function sets it; a gate checks the types in the model"
    ),
    "Setting 'keep_initializers_as_inputs=False' for opset version": (
        "torch 1.13 to 2.13: below opset 9 initializers must be inputs; a gate checks that there are none"
    ),
}
"""How the message of a harmless warning begins, and the versions of torch that print it, and why it is accepted."""


def unexpected(texts: list[str]) -> list[str]:
    """Return the messages that `ACCEPTED` does not name, each once."""
    accepted = re.compile("|".join(map(re.escape, ACCEPTED)))
    return [text for text in dict.fromkeys(texts) if not accepted.match(text)]


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect warnings and log messages instead of printing them; the list is complete when the block ends."""
    texts: list[str] = []
    collector = _Collector(texts)
    known = [logging.getLogger(n) for n in logging.root.manager.loggerDict if n.partition(".")[0] in LOGGERS]
    loggers = {*(logging.getLogger(n) for n in LOGGERS), *(logger for logger in known if logger.handlers)}
    with warnings.catch_warnings(record=True) as caught, ExitStack() as changed:
        for logger in loggers:  # their handlers print to stderr
            changed.enter_context(mock.patch.multiple(logger, handlers=[collector], propagate=False))
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught]


class _Collector(logging.Handler):
    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
