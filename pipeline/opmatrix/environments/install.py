"""Install the environment of another torch or ONNX Runtime, and record its versions."""

from __future__ import annotations

import os

from opmatrix.environments import matrix_env
from opmatrix.project.paths import Paths


def run(paths: Paths, name: str) -> None:
    """Install the environment `name`, such as "torch2.9", where it is missing or has other pins.

    Writes the version of each package that keys of steps contain. Raises NoEnvironmentError with the reason.
    """
    matrix_env.bring_up_to_date(paths, name, os.environ)
