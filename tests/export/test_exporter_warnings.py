"""Messages of the exporters are collected, not printed, and each one that is not accepted fails the export."""

from __future__ import annotations

import logging
import re
import warnings

import pytest

from opmatrix.export.exporter_warnings import ACCEPTED, collected, unexpected


def test_warnings_and_log_records_are_collected_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("torch.onnx.planted")
    logger.addHandler(logging.StreamHandler())  # as torch's own loggers have one
    with collected() as texts:
        warnings.warn("planted warning", DeprecationWarning, stacklevel=1)
        logger.warning("planted %s", "record")
        logging.getLogger("onnxscript.planted").error("planted error")
        logger.info("of no interest")
    assert sorted(texts) == ["planted error", "planted record", "planted warning"]
    assert capfd.readouterr() == ("", "")


def test_loggers_are_restored() -> None:
    logger = logging.getLogger("torch.onnx.restored")
    logger.addHandler(logging.NullHandler())
    before = (list(logger.handlers), logger.propagate)
    with collected():
        pass
    assert (logger.handlers, logger.propagate) == before


def test_an_accepted_message_passes_and_others_are_named_once() -> None:
    texts = [next(iter(ACCEPTED)) + " and more of it", "something new", "something new"]
    assert unexpected(texts) == ["something new"]


def test_a_message_is_accepted_only_by_its_beginning() -> None:
    text = "x" + next(iter(ACCEPTED))
    assert unexpected([text]) == [text]


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda text: text[:30])
def test_each_accepted_message_has_versions_and_a_reason(accepted: str) -> None:
    assert re.match(r"torch \d+\.\d+( (to|and) \d+\.\d+)?: \w", ACCEPTED[accepted])
