"""Make the environment of another torch or ONNX Runtime, and write down what is in it."""

from __future__ import annotations

import os

from opmatrix.environments import matrix_env
from opmatrix.project.paths import Paths


def run(layout: Paths, name: str) -> None:
    """Make the environment `name`, such as "torch2.9", where it is not there or made from other pins.

    Writes the version of each package that steps are keyed by. Raises NoEnvironmentError, whose message says why.
    """
    matrix_env.bring_up_to_date(layout, name, os.environ)
