"""`doit tabcompletion`: completion of commands, options, steps and cells in bash, zsh and fish. A doit command.

The script of each shell, in completion/, passes the line so far to this command, which knows every step.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from doit.cmd_base import DoitCmdBase

from opmatrix.commands.base import CommandBase, option
from opmatrix.commands.task_selection import steps_of_operators
from opmatrix.matrix.cells import rows

VARIABLES = ("torch=", "ort=", "opsets=")


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
        known = ("all", *getattr(rows(), name, ())) if f"{name}=" in VARIABLES else ()
        return [f"{name}={earlier}{comma}{v}" for v in known if v.startswith(part)]
    if named in ("check", "new", "tabcompletion"):
        return []
    if ":" in last:
        return [task for task in tasks if task.startswith(last)]
    groups = [task for task in tasks if ":" not in task]
    stems = dict.fromkeys(task.partition(":")[0] + ":" for task in tasks if ":" in task)
    first = [] if named else [*commands, *VARIABLES]
    return [found for found in (*first, *groups, *stems) if found.startswith(last)]
