"""The program `opmatrix`, and `doit` in a project: doit with the commands, state and reporters of opmatrix.

A project's pyproject.toml names only the loader `opmatrix`, which doit finds among the installed entry points. All else
is here, so that an older project gets the commands of a newer opmatrix. An entry point per command would also replace
`run` and `list` in every other doit project of the same environment.

`doit help`, `doctor`, `--version` and `tabcompletion`; `doit_command`, the text by which a project calls doit.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from doit import plugin
from doit.cmd_completion import TabCompletion as DoitTabCompletion
from doit.cmd_help import Help as DoitHelp
from doit.doit_cmd import DoitMain
from doit.exceptions import InvalidCommand

from opmatrix.basics import features
from opmatrix.basics.errors import OpmatrixError, UsageError, did_you_mean, end_if_unread, print_error, stage_exit_codes
from opmatrix.basics.terminal import in_checkout, use_utf8, width_of, wrapped
from opmatrix.commands.base import CommandBase
from opmatrix.commands.dodo import Loader
from opmatrix.engine.tasks import GROUPS
from opmatrix.project.paths import Paths
from opmatrix.project.settings import PACKAGES, find_root

OWN_COMMANDS: Mapping[str, str] = {
    "run": "opmatrix.commands.run:Run",
    "why": "opmatrix.commands.state:Why",
    "list": "opmatrix.commands.state:List",
    "watch": "opmatrix.commands.watch:Watch",
    "tolerances": "opmatrix.commands.probe:Tolerances",
    "compat": "opmatrix.commands.run:Compat",
    "probe": "opmatrix.commands.probe:Probe",
    "clean": "opmatrix.commands.state:Clean",
    "forget": "opmatrix.commands.state:Forget",
    "ignore": "opmatrix.commands.state:Ignore",
    "cache": "opmatrix.commands.cache:Cache",
    "new": "opmatrix.commands.new:New",
    "help": "opmatrix.commands.main:Help",
    "info": "opmatrix.commands.state:Info",
    "doctor": "opmatrix.commands.main:Doctor",
    "update": "opmatrix.commands.update:Update",
    "tabcompletion": "opmatrix.commands.main:TabCompletion",
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

_COLUMN = 34  # where the descriptions begin
# Commands in the order in which a new user needs them; each has its purpose in `doc_purpose`.
EVERY_DAY = ("run", "watch", "why", "list", "new", "check", "tolerances", "mutate", "compat", "bench")
STATE = ("clean", "forget", "ignore", "info", "cache")
ABOUT = ("doctor", "help", "tabcompletion")

FORMS = (
    ("", "all that is not up to date; -n 2 on two cores"),
    ("TASK ...", "a stage, an operator, a step or a pattern: verify, nms, compile:nms, 'verify:nms*'"),
    ("torch=2.9 ort=1.18", "in other cells; opsets=18,20 as well; `all` is every one"),
)
EXIT_CODES = (
    ("0", "all steps succeeded, and each cell is verified, or unsupported for a stated reason"),
    ("1", "a step failed, a cell is wrong, `doit check` found a fault, a score is too low"),
    ("2", "usage error: an unknown command, option, task, operator or cell; nothing ran"),
    ("3", "an invalid declaration or setting, or another run in this folder; nothing ran"),
    ("130", "interrupted, by Ctrl-C; the results of finished steps are kept"),
    ("143, 129", "interrupted, by SIGTERM or SIGHUP; likewise"),
)
VARIABLES = (
    ("NO_COLOR", "no colours, where it is set to anything; FORCE_COLOR: colours in a pipe as well"),
    ("TERM=dumb", "a line per step instead of the live one, as in a pipe"),
    ("CXX, NINJA", "compiler and ninja, where they are not those on PATH"),
    ("OPMATRIX_ORT_INCLUDE", "a folder with other headers of ONNX Runtime"),
    ("OPMATRIX_CACHE", "the address of the shared cache, in place of pyproject.toml's, or off"),
    ("OPMATRIX_CACHE_MODE", "read, write, check or off, in place of pyproject.toml's"),
    ("OPMATRIX_CACHE_KEY", "the file of the SSH key that signs entries of the shared cache"),
    ("OPMATRIX_CACHE_TOKEN", "a bearer token for the server of a shared cache"),
    ("OPMATRIX_TORCH_INDEX", "a package index that has torch's CPU builds"),
)

_installed = cache(metadata.entry_points)


def commands() -> dict[str, str]:
    """Return the commands by name, with those of features where help lists them."""
    every = {**features.added("commands"), **OWN_COMMANDS}
    return {name: every.pop(name) for name in EVERY_DAY if name in every} | every


def _of_group(*, group: str) -> metadata.EntryPoints:
    """Return the entry points of a group. doit 0.37 reads the metadata of all installed distributions, 8 ms, for each
    kind of plug-in anew."""
    return _installed().select(group=group)


class _Addon(plugin.PluginEntry):
    """The command of a feature. One that cannot be imported says so in help and when it is called."""

    def load(self) -> Any:
        try:
            return features.load(self.location)
        except UsageError as error:
            return _broken(self.name, error)


def _broken(command: str, error: UsageError) -> type[CommandBase]:
    class Broken(CommandBase):
        name = command
        doc_purpose = str(error)

        def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
            raise error

    return Broken


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

    @staticmethod
    def print_version() -> None:
        """Print the versions of opmatrix and of the packages that results depend on, and opmatrix's folder."""
        print(f"opmatrix {metadata.version('opmatrix')} in {Path(__file__).parents[1]}")
        print(f"Python {sys.version.split()[0]}")
        for package in ("doit", "ninja", *PACKAGES):
            try:
                print(f"{package} {metadata.version(package)}")
            except metadata.PackageNotFoundError:
                print(f"{package} is not installed")

    def get_cmds(self) -> plugin.PluginDict:
        by_name: plugin.PluginDict = super().get_cmds()
        by_name.update({name: _Addon("COMMAND", name, place) for name, place in features.added("commands").items()})
        return by_name

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
    anywhere = {*_ANYWHERE, *(name for feature in features.features().values() for name in feature.anywhere)}
    try:
        if not Path("dodo.py").is_file() and anywhere.isdisjoint(arguments[:1]):
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


class Help(CommandBase, DoitHelp):
    """Print the commands in the order of use, and an error for an unknown name, unlike doit 0.37."""

    name = "help"
    doc_purpose = "commands, tasks and exit codes; the options of a command"
    doc_usage = "[COMMAND]"

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if args and args[0] not in self.cmds:
            near = did_you_mean(args[0], self.cmds)
            raise InvalidCommand(f"no command {args[0]!r}{near}; `doit list` prints the tasks")
        return int(super().execute(params, args))

    def print_usage(self, cmds: Mapping[str, Any]) -> None:
        doit, width = doit_command(), width_of(sys.stdout)  # 0 where lines stay whole

        def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
            lines = [f"{title}:"]
            for left, right in rows:
                first, *others = wrapped(right, max(width - _COLUMN, 20) if width else 0).split("\n")
                lines += [f"  {left:<{_COLUMN - 3}} {first}", *(" " * _COLUMN + other for other in others)]
            return "\n".join(lines)

        def commands(title: str, names: Iterable[str]) -> str:
            return table(title, ((name, cmds[name].doc_purpose) for name in names))

        kinds = [(str(code), text.partition(". ")[0].rstrip(".")) for code, text in stage_exit_codes().items()]
        stage_codes = [(code, kind if kind[1:2].isupper() else kind[:1].lower() + kind[1:]) for code, kind in kinds]
        parts = (
            f"{doit} [COMMAND] ...: build and verify the operators of ops/; only what a change makes necessary",
            table("what runs", ((f"{doit} {form}".strip(), text) for form, text in FORMS)),
            commands("commands", EVERY_DAY),
            commands("results of earlier runs", STATE),
            table("tasks, in the order of the data flow", GROUPS.items()),
            table("exit codes", EXIT_CODES),
            table("exit codes of a stage by hand, python -m opmatrix STAGE, other than 0 and 1", stage_codes),
            table("environment variables", VARIABLES),
            commands("more", ABOUT),
        )
        print("\n\n".join(parts))


class TabCompletion(CommandBase, DoitTabCompletion):
    name = "tabcompletion"
    doc_purpose = "a script for bash-completion, or for zsh, that completes commands and tasks"
    doc_usage = "[--shell bash | zsh]"


def doit_command(root: Path = Path()) -> str:
    """Return the command that runs doit in a project: ``./run doit`` in a checkout of opmatrix, else ``doit``."""
    return "./run doit" if in_checkout(root) else "doit"


class Doctor(CommandBase):
    """Load no tasks: dodo.py, a declaration or the toolchain may be what is broken."""

    name = "doctor"
    doc_purpose = "check the machine: compiler, headers, packages, environments, locks, disk"
    doc_description = (
        "Each line is one check; a problem has its remedy below it. Nothing is changed or fetched, and torch is not "
        "imported. Returns 0, or 1 if something that doit needs is missing. Where even doit is missing: python -m "
        "opmatrix doctor."
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        from opmatrix.commands.doctor import main  # only this command needs it

        return main(args)
