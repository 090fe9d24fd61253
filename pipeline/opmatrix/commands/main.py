"""doit with the commands, state and display of opmatrix: what `doit` becomes in a project, and what `opmatrix` is.

A project's pyproject.toml names one thing, the loader `opmatrix`, which doit finds among the entry points of what is
installed. All else stands here, so that a newer opmatrix brings its new commands to a project that is older. An entry
point for each command would do that as well, and would take `run` and `list` away from every other doit project of the
same environment.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from doit.doit_cmd import DoitMain

from opmatrix.commands.doit_loader import Loader
from opmatrix.commands.help import print_versions
from opmatrix.errors import OpmatrixError, UsageError
from opmatrix.project.paths import Paths
from opmatrix.project.settings import find_root

COMMANDS: Mapping[str, str] = {
    "run": "opmatrix.commands.run:Run",
    "why": "opmatrix.commands.why:Why",
    "list": "opmatrix.commands.list:List",
    "check": "opmatrix.commands.check:Check",
    "clean": "opmatrix.commands.clean:Clean",
    "forget": "opmatrix.commands.forget:Forget",
    "ignore": "opmatrix.commands.ignore:Ignore",
    "new": "opmatrix.commands.new:New",
    "help": "opmatrix.commands.help:Help",
    "info": "opmatrix.commands.info:Info",
    "update": "opmatrix.commands.update:Update",
    "tabcompletion": "opmatrix.commands.complete:Complete",
    # What doit has and steps in servers cannot: each says why.
    "reset-dep": "opmatrix.commands.removed:ResetDep",
    "dumpdb": "opmatrix.commands.removed:DumpDb",
    "strace": "opmatrix.commands.removed:Strace",
}
REPORTERS: Mapping[str, str] = {
    "progress": "opmatrix.engine.progress_reporter:Progress",
    "jsonl": "opmatrix.engine.jsonl_reporter:JsonLines",
}
# What [tool.doit] of a pyproject.toml may say otherwise.
SETTINGS: Mapping[str, object] = {
    "backend": "journal",
    "dep_file": str(Paths(Path()).state),
    "continue": True,  # one broken operator or cell must not hide the others
    "reporter": "progress",
}
# Those that need no project.
_ANYWHERE = ("new", "help", "tabcompletion", "--help", "-h", "--version")


class Program(DoitMain):
    """doit's program for the project in the current folder. Its pyproject.toml goes before what stands here."""

    def __init__(self) -> None:
        super().__init__(
            task_loader=Loader(),
            extra_config={
                "GLOBAL": SETTINGS,
                "COMMAND": COMMANDS,
                "REPORTER": REPORTERS,
                "BACKEND": {"journal": "opmatrix.engine.database:Journal"},
                "list": {"sort": "definition"},
            },
        )

    print_version = staticmethod(print_versions)

    def run(self, all_args: Sequence[str]) -> int:
        if "" in all_args:  # of a shell's variable that is not set; doit 0.37 shows a traceback
            print("doit: an argument is empty; leave it out", file=sys.stderr)
            return UsageError.exit_code
        # doit answers --help by itself, with its own list of commands (0.37), and takes -h for an option of `run`.
        return int(super().run(["help"] if all_args[:1] in (["--help"], ["-h"]) else all_args) or 0)


def hand_over() -> NoReturn:
    """Go on as `Program`: what doit calls for the loader that a project's pyproject.toml names.

    doit asks for it before it looks at its arguments, and offers no other place that knows a project and comes before
    the commands.
    """
    if Path(sys.argv[0]).stem not in ("doit", "__main__"):
        raise UsageError("this is a project of opmatrix; in Python use opmatrix.commands.main.Program().run([...])")
    sys.exit(Program().run(sys.argv[1:]))


def main() -> int:
    """Run `opmatrix COMMAND`: as `doit COMMAND`, and in a folder that is no project yet."""
    arguments = sys.argv[1:]
    try:
        if not Path("dodo.py").is_file() and not (arguments and arguments[0] in _ANYWHERE):
            folder, root = str(Path.cwd()), str(find_root(Path.cwd()))
            raise UsageError(f"no dodo.py in {folder!r}; the project is in {root!r}: go there")
    except OpmatrixError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return Program().run(arguments)
