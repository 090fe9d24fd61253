"""`doit watch [TASK ...]`: run doit after each save, with servers that are kept from run to run. A doit command."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from doit import doit_cmd
from doit.cmd_run import opt_num_process

from opmatrix.basics.errors import ToolchainError, UsageError, print_error, printable
from opmatrix.basics.terminal import for_shell, width_of, wrapped
from opmatrix.commands.base import CommandBase, option
from opmatrix.commands.run import KEPT, Run

if TYPE_CHECKING:
    from opmatrix.engine.server_pool import Resident

_REPORTERS = (("brief", "the verdict"), ("progress", "all that `doit` prints"), ("jsonl", "for programs"))
_NAMED = 2  # files of a save that are named
# What a turn and its steps in no other server would import, so that each turn does without.
_PRELOADS = (
    "ctypes",
    "doit.cmd_run",
    "elftools.elf.dynamic",
    "elftools.elf.elffile",
    "email.parser",
    "opmatrix.commands.stages",
    "opmatrix.declaration.isolated",
    "opmatrix.engine.reporters",
    "opmatrix.engine.database",
    "opmatrix.engine.earlier_verdicts",
    "opmatrix.engine.forecast",
    "opmatrix.engine.server_pool",
    "opmatrix.report.records",
    "opmatrix.codegen.write_code",
    "opmatrix.toolchain.compile",
    "opmatrix.report.write_report",
    "rich.progress",
)


class Watch(CommandBase):
    """Run the chosen tasks, and again after each save, in forks of one resident process."""

    name = "watch"
    doc_purpose = "run after each save, with servers that are kept; the verdict in ten lines"
    doc_usage = "[TASK ...]"
    doc_description = (
        "Keeps the servers, which have imported torch, the exporters and ONNX Runtime. Between two runs the build "
        "folder is free for any other doit. Ctrl-C ends it. It needs the extra opmatrix[watch]."
    )
    cmd_options = (
        opt_num_process,
        option("shown", "how a run is shown", "brief", short="r", long="reporter", choices=_REPORTERS),
    )

    def __init__(self, cmds: Any = None, **others: Any) -> None:
        super().__init__(cmds=cmds, **others)
        self._commands = cmds

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if importlib.util.find_spec("watchfiles") is None:
            raise ToolchainError(
                f"doit watch needs the package watchfiles, which is not installed. Run: {sys.executable} -m pip "
                "install 'opmatrix[watch]'"
            )
        for module in _PRELOADS:
            importlib.import_module(module)
        from opmatrix.engine.resident import Loop

        self._events = params["shown"] == "jsonl"
        command = ["run", "-r", params["shown"], "-n", str(params["num_process"])]
        command += [f"{name}={value}" for name, value in (doit_cmd._CMDLINE_VARS or {}).items()]
        run: type[Run] = self._commands.get_plugin("run")

        def turn(resident: Resident) -> int:
            from opmatrix.commands.main import Program

            run.resident = resident
            run.waits = staticmethod(self._note)
            sys.argv[1:] = [*command, *args]
            try:
                return Program().run(sys.argv[1:])
            except tomllib.TOMLDecodeError as error:
                print_error(f"pyproject.toml: {error}")
                return UsageError.exit_code

        if not self._events:
            print("watching what the steps read, in ops/, native/ and the settings; Ctrl-C ends", flush=True)
        loop = Loop(self._paths, entry=run.entry, turn=turn, say=self._say, note=self._note)
        code = loop.run()
        if loop.interrupted:
            print(f"\n{KEPT}", file=sys.stderr)
        return code

    def _say(self, files: Sequence[Path]) -> None:
        """Print which files were saved: the first line of a turn."""
        names = [os.path.relpath(path) for path in files]
        if self._events:
            print(json.dumps({"event": "saved", "files": names}), flush=True)
            return
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        what = "saved" if any(map(Path.exists, files)) else "removed"
        line = printable(f"{time.strftime('%H:%M:%S')} {', '.join(names[:_NAMED])}{more} {what}")
        width = width_of(sys.stdout)
        print(f"\n{line[:width] if width else line}", flush=True)

    def _note(self, text: str) -> None:
        shown = wrapped(printable(for_shell(text)), width_of(sys.stdout))
        print(json.dumps({"event": "note", "reason": text}) if self._events else shown, flush=True)
