"""Make the environment of another torch or ONNX Runtime, and write down what is in it."""

from __future__ import annotations

import os

from pipeline import matrix_environment
from pipeline.layout import Layout


def run(layout: Layout, name: str) -> None:
    """Make the environment `name`, such as "torch2.9", where it is not there or made from other pins.

    Writes the version of each package that steps are keyed by. Raises NoEnvironmentError, whose message says why.
    """
    matrix_environment.bring_up_to_date(layout, name, os.environ)
