"""The program `opmatrix`, and `doit` in a project: doit with the commands, state and reporters of opmatrix.

A project's pyproject.toml names only the loader `opmatrix`, which doit finds among the installed entry points. All else
is here, so that an older project gets the commands of a newer opmatrix. An entry point per command would also replace
`run` and `list` in every other doit project of the same environment.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path
from typing import NoReturn

from doit import plugin
from doit.doit_cmd import DoitMain

from opmatrix.basics import features
from opmatrix.basics.errors import OpmatrixError, UsageError, end_if_unread, print_error
from opmatrix.basics.terminal import use_utf8
from opmatrix.commands.dodo import Loader
from opmatrix.commands.help import EVERY_DAY, print_versions
from opmatrix.project.paths import Paths
from opmatrix.project.settings import find_root

OWN_COMMANDS: Mapping[str, str] = {
    "run": "opmatrix.commands.run:Run",
    "why": "opmatrix.commands.status:Why",
    "list": "opmatrix.commands.status:List",
    "watch": "opmatrix.commands.watch:Watch",
    "tolerances": "opmatrix.commands.probe:Tolerances",
    "compat": "opmatrix.commands.run:Compat",
    "probe": "opmatrix.commands.probe:Probe",
    "clean": "opmatrix.commands.state:Clean",
    "forget": "opmatrix.commands.state:Forget",
    "ignore": "opmatrix.commands.state:Ignore",
    "cache": "opmatrix.commands.cache:Cache",
    "new": "opmatrix.commands.new:New",
    "help": "opmatrix.commands.help:Help",
    "info": "opmatrix.commands.status:Info",
    "doctor": "opmatrix.commands.help:Doctor",
    "update": "opmatrix.commands.update:Update",
    "tabcompletion": "opmatrix.commands.help:TabCompletion",
}
REPORTERS: Mapping[str, str] = {
    "progress": "opmatrix.engine.progress_reporter:Progress",
    "brief": "opmatrix.engine.reporters:Brief",
    "jsonl": "opmatrix.engine.reporters:JsonLines",
}
# Defaults, which [tool.doit] of a pyproject.toml overrides.
SETTINGS: Mapping[str, object] = {
    "backend": "journal",
    "dep_file": str(Paths(Path()).state),
    "continue": True,  # one broken operator or cell must not hide the others
    "reporter": "progress",
}
# Commands that need no project, besides those of features.
_ANYWHERE = ("new", "cache", "doctor", "help", "tabcompletion", "--help", "-h", "--version")


_installed = cache(entry_points)


def commands() -> dict[str, str]:
    """Return the commands by name, with those of features where help lists them."""
    every = {**features.added("commands"), **OWN_COMMANDS}
    return {name: every.pop(name) for name in EVERY_DAY if name in every} | every


def anywhere() -> tuple[str, ...]:
    """Return the commands that need no project."""
    return _ANYWHERE + tuple(name for feature in features.features().values() for name in feature.anywhere)


def _of_group(*, group: str) -> EntryPoints:
    """Return the entry points of a group. doit 0.37 reads the metadata of all installed distributions, 8 ms, for each
    kind of plug-in anew."""
    return _installed().select(group=group)


class Program(DoitMain):
    """doit's program for the project in the current folder, whose pyproject.toml overrides `SETTINGS`."""

    # No command is doit's own: its reset-dep would record results that were not verified, and dumpdb and strace cannot
    # work with this state and these servers.
    DOIT_CMDS = ()

    def __init__(self) -> None:
        plugin.entry_points_impl = lambda: _of_group
        super().__init__(
            task_loader=Loader(),
            extra_config={
                "GLOBAL": SETTINGS,
                "COMMAND": commands(),
                "REPORTER": REPORTERS,
                "BACKEND": {"journal": "opmatrix.engine.database:Journal"},
                "list": {"sort": "definition"},
            },
        )

    print_version = staticmethod(print_versions)

    def run(self, all_args: Sequence[str]) -> int:
        if "" in all_args:  # such as an unset shell variable; doit 0.37 shows a traceback
            print("doit: an argument is empty; leave it out", file=sys.stderr)
            return UsageError.exit_code
        try:
            # doit 0.37 prints its own list of commands for --help, and takes -h for an option of `run`.
            code = int(super().run(["help"] if all_args[:1] in (["--help"], ["-h"]) else all_args) or 0)
            sys.stdout.flush()
        except BrokenPipeError:
            end_if_unread()
            raise
        return code


def hand_over() -> NoReturn:
    """Run `Program` instead of doit's own: the entry point of the loader `opmatrix`. doit has no other hook that knows
    the project before the commands are loaded."""
    if Path(sys.argv[0]).stem not in ("doit", "__main__"):
        raise UsageError("this is a project of opmatrix; in Python use opmatrix.commands.main.Program().run([...])")
    use_utf8()
    sys.exit(Program().run(sys.argv[1:]))


def main() -> int:
    """Run `opmatrix COMMAND`: as `doit COMMAND`, but some commands also outside a project."""
    use_utf8()
    arguments = sys.argv[1:]
    try:
        if not Path("dodo.py").is_file() and not (arguments and arguments[0] in anywhere()):
            folder, root = str(Path.cwd()), str(find_root(Path.cwd()))
            raise UsageError(f"no dodo.py in {folder!r}; the project is in {root!r}: go there")
    except OpmatrixError as error:
        print_error(error)
        return error.exit_code
    if arguments == ["doctor"]:
        from opmatrix.commands.doctor import main as examine  # also where doit cannot read pyproject.toml

        return examine([])
    try:
        program = Program()
    except tomllib.TOMLDecodeError as error:
        print_error(f"pyproject.toml: {error}")
        return UsageError.exit_code
    return program.run(arguments)
