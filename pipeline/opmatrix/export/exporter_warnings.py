"""The accepted warnings of the exporters: any other warning is an error. Needs only the standard library."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LOGGERS = ("torch", "onnxscript", "onnx_ir")


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """A harmless warning: how its message begins, the versions of torch that print it, and why it is accepted."""

    text: str
    torch: str
    reason: str


ACCEPTED = (
    Accepted(
        text="You are using the legacy TorchScript-based ONNX export",
        torch="2.9 to 2.13",
        reason="opmatrix requests the legacy exporter",
    ),
    Accepted(
        text="The feature will be removed. Please remove usage of this function",
        torch="2.6 to 2.13",
        reason="the legacy exporter calls a deprecated function of its own",
    ),
    Accepted(
        text="`isinstance(treespec, LeafSpec)` is deprecated",
        torch="2.10 to 2.13",
        reason="torch copies its own ExportedProgram through a deprecated class",
    ),
    Accepted(
        text="Missing annotation for parameter",
        torch="2.6 and 2.9",
        reason="it takes the tensors of a translation, which have no annotation, for inputs: they are",
    ),
    Accepted(
        text="torchvision is not installed. Skipping torchvision::",
        torch="2.6 to 2.13",
        reason="no operator needs the translations for torchvision's operators",
    ),
    Accepted(
        text="triton not found; flop counting will not work",
        torch="2.13 and 2.15",
        reason="a build for CUDA without triton prints it when it imports its counter of operations: no export counts",
    ),
    Accepted(
        text="The shape inference of ",
        torch="1.13",
        reason="it looks for a type before the symbolic function sets it; a gate checks the types in the model",
    ),
    Accepted(
        text="Setting 'keep_initializers_as_inputs=False' for opset version",
        torch="1.13 to 2.13",
        reason="below opset 9 initializers must be inputs; a gate checks that there are none",
    ),
)


def unexpected(texts: list[str]) -> list[str]:
    """Return the messages that `ACCEPTED` does not name, each once."""
    accepted = re.compile("|".join(re.escape(a.text) for a in ACCEPTED))
    return [text for text in dict.fromkeys(texts) if not accepted.match(text)]


@contextmanager
def collected() -> Iterator[list[str]]:
    """Collect warnings and log messages instead of printing them; the list is complete when the block ends."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught, _logged(texts):
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught]


@contextmanager
def _logged(texts: list[str]) -> Iterator[None]:
    """Replace the handlers of the exporters' loggers, which print to stderr."""
    collector = _Collector(texts)
    known = [logging.getLogger(n) for n in logging.root.manager.loggerDict if n.partition(".")[0] in LOGGERS]
    loggers = {*(logging.getLogger(n) for n in LOGGERS), *(logger for logger in known if logger.handlers)}
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [collector], False
    try:
        yield
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate


class _Collector(logging.Handler):
    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
