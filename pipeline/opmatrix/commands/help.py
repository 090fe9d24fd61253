"""`doit help`, `doctor`, `--version` and `tabcompletion`; `doit_command`, the text by which a project calls doit."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from doit.cmd_completion import TabCompletion as DoitTabCompletion
from doit.cmd_help import Help as DoitHelp
from doit.exceptions import InvalidCommand

from opmatrix.basics.errors import did_you_mean, stage_exit_codes
from opmatrix.basics.terminal import width_of, wrapped
from opmatrix.commands.base import CommandBase
from opmatrix.engine.tasks import GROUPS
from opmatrix.project.settings import PACKAGES

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
        purposes = {name: command.doc_purpose for name, command in cmds.items()}
        print(usage(purposes, groups=GROUPS, doit=doit_command(), width=width_of(sys.stdout)))


class TabCompletion(CommandBase, DoitTabCompletion):
    name = "tabcompletion"
    doc_purpose = "a script for bash-completion, or for zsh, that completes commands and tasks"
    doc_usage = "[--shell bash | zsh]"


def doit_command(root: Path = Path()) -> str:
    """Return the command that runs doit in a project: ``./run doit`` in a checkout of opmatrix, else ``doit``."""
    return "./run doit" if (root / "run").is_file() else "doit"


def usage(purposes: Mapping[str, str], *, groups: Mapping[str, str], doit: str, width: int = 0) -> str:
    """Return the text of `doit help`. `purposes`: of each command; `groups`: what the tasks of each group do; `width`:
    the columns of the terminal, 0 where lines stay whole."""

    def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
        lines = [f"{title}:"]
        for left, right in rows:
            first, *others = wrapped(right, max(width - _COLUMN, 20) if width else 0).split("\n")
            lines += [f"  {left:<{_COLUMN - 3}} {first}", *(" " * _COLUMN + other for other in others)]
        return "\n".join(lines)

    def commands(title: str, names: Iterable[str]) -> str:
        return table(title, ((name, purposes[name]) for name in names))

    return "\n\n".join(
        (
            f"{doit} [COMMAND] ...: build and verify the operators of ops/; only what a change makes necessary",
            table("what runs", ((f"{doit} {form}".strip(), text) for form, text in FORMS)),
            commands("commands", EVERY_DAY),
            commands("results of earlier runs", STATE),
            table("tasks, in the order of the data flow", groups.items()),
            table("exit codes", EXIT_CODES),
            table("exit codes of a stage by hand, python -m opmatrix STAGE, other than 0 and 1", stage_codes()),
            table("environment variables", VARIABLES),
            commands("more", ABOUT),
        )
    )


def stage_codes() -> list[tuple[str, str]]:
    """Return the exit codes of the stages, each with the kind of error."""
    first_sentences = ((code, text.partition(". ")[0].rstrip(".")) for code, text in stage_exit_codes().items())
    return [(str(code), text if text[1:2].isupper() else text[:1].lower() + text[1:]) for code, text in first_sentences]


def print_versions() -> None:
    """Print the versions of opmatrix and of the packages that results depend on, and opmatrix's folder."""
    print(f"opmatrix {metadata.version('opmatrix')} in {Path(__file__).parents[1]}")
    print(f"Python {sys.version.split()[0]}")
    for package in ("doit", "ninja", *PACKAGES):
        try:
            print(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            print(f"{package} is not installed")


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
