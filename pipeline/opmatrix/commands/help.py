"""`doit help` and `doit --version`. A doit command, and `doit_command`, the text by which a project calls doit.

`doit tabcompletion`: completion of commands, options, steps and cells in bash, zsh and fish. A doit command.

The script of each shell, in completion/, passes the line so far to this command, which knows every step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase
from doit.cmd_help import Help as DoitHelp
from doit.exceptions import InvalidCommand

from opmatrix.basics.errors import did_you_mean, many, stage_exit_codes
from opmatrix.basics.terminal import width_of, wrapped
from opmatrix.commands.base import CommandBase, option
from opmatrix.commands.task_selection import steps_of_operators
from opmatrix.engine.tasks import GROUPS
from opmatrix.project.cells import rows
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
    doc_purpose = "commands, tasks and exit codes; the options of a command, what a task does"
    doc_usage = "[COMMAND | TASK | OPERATOR]"

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if len(args) == 1 and args[0] not in self.cmds:
            if not Path("dodo.py").is_file():
                near = did_you_mean(args[0], self.cmds)
                raise InvalidCommand(f"no command {args[0]!r}{near}; tasks are known in a project alone")
            return int(DoitCmdBase.execute(self, params, args))  # loads the tasks, then calls _execute
        return int(super().execute(params, args))

    def print_usage(self, cmds: Mapping[str, Any]) -> None:
        purposes = {name: command.doc_purpose.replace("./run doit", doit_command()) for name, command in cmds.items()}
        print(usage(purposes, groups=GROUPS, doit=doit_command(), width=width_of(sys.stdout)))

    def _execute(self, pos_args: Sequence[str]) -> int:
        (name,) = pos_args
        tasks, operators = {task.name for task in self.task_list}, steps_of_operators(self.task_list)
        if name in operators and name not in tasks:
            steps = many(len(operators[name]), "step")
            print(f"{name}: an operator, ops/{name}/, of {steps}\nmore: {doit_command()} why {name}")
            return 0
        if name not in tasks:
            near = did_you_mean(name, [*self.cmds, *tasks, *operators])
            raise InvalidCommand(f"no command, task or operator {name!r}{near}; see `{doit_command()} help`")
        group = name.partition(":")[0]
        more = f"{doit_command()} list --all {group}" if name == group else f"{doit_command()} info {name}"
        print(f"{name}: {GROUPS[group]}\nmore: {more}")
        return 0


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


CHOICES = ("torch=", "ort=", "opsets=")


class Complete(CommandBase, DoitCmdBase):
    """Complete `./run doit` and variables too, without the package bash-completion, which doit 0.37 needs."""

    name = "tabcompletion"
    doc_purpose = "completion for a shell: source <(./run doit tabcompletion), or --shell zsh, fish"
    doc_usage = "[--shell bash | zsh | fish]"
    cmd_options = (
        option("shell", "print its part", "bash") | {"choices": [(shell, "") for shell in ("bash", "zsh", "fish")]},
        option("line", "for a shell: print what may follow"),
    )

    def __init__(self, cmds: Any = None, **others: Any) -> None:
        super().__init__(cmds=cmds, **others)
        self._commands = cmds

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if not params["line"]:
            print((Path(__file__).parent / "completion" / params["shell"]).read_text(encoding="utf-8"), end="")
            return 0
        if not Path("dodo.py").is_file():  # `opmatrix new`, where no project is yet
            return self._offer(params["line"], tasks=())
        return int(super().execute(params, args))

    def _execute(self, line: str) -> int:
        return self._offer(line, tasks=[*(t.name for t in self.task_list), *steps_of_operators(self.task_list)])

    def _offer(self, line: str, *, tasks: Sequence[str]) -> int:
        words = line.split(" ")
        options: list[str] = []
        if words[-1].startswith("-"):
            named = next((word for word in words[1:-1] if word in self._commands), "run")
            options = [f"--{o['long']}" for o in self._commands.get_plugin(named).cmd_options if o.get("long")]
        sys.stdout.writelines(f"{found}\n" for found in candidates(words, [*self._commands], options, tasks))
        return 0


def candidates(
    words: Sequence[str], commands: Sequence[str], options: Sequence[str], tasks: Sequence[str]
) -> list[str]:
    """Return the completions of the last of `words`, which begin with ``doit``, but no file names; `options` are those
    of its command. Until a colon is typed, a group is completed, not its steps: ``verify`` and ``verify:``."""
    *before, last = words
    named = next((word for word in before[1:] if word in commands), "")
    if last.startswith("-"):
        return [option for option in options if option.startswith(last)]
    name, equals, value = last.partition("=")
    if equals:
        earlier, comma, part = value.rpartition(",")
        known = ("all", *getattr(rows(), name, ())) if f"{name}=" in CHOICES else ()
        return [f"{name}={earlier}{comma}{v}" for v in known if v.startswith(part)]
    if named in ("check", "new", "tabcompletion"):
        return []
    if ":" in last:
        return [task for task in tasks if task.startswith(last)]
    groups = [task for task in tasks if ":" not in task]
    stems = dict.fromkeys(task.partition(":")[0] + ":" for task in tasks if ":" in task)
    first = [] if named else [*commands, *CHOICES]
    return [found for found in (*first, *groups, *stems) if found.startswith(last)]
