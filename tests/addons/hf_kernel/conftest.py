"""The project and the wheel from which the folder is made are those of the wheel's tests."""

from __future__ import annotations

from tests.wheel.conftest import shipped, wheel

__all__ = ["shipped", "wheel"]
