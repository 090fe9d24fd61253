"""The program doit of a project."""

from importlib.metadata import entry_points

import pytest
from doit import plugin

from opmatrix.commands.main import Program


@pytest.mark.parametrize("group", ["doit.LOADER", "console_scripts", "none.has.this"])
def test_plugins_of_other_packages_are_found(group: str) -> None:
    """doit's search for plug-ins, of which the program keeps the installed distributions, finds the same as before."""
    Program()
    assert sorted(plugin.entry_points_impl()(group=group)) == sorted(entry_points(group=group))
