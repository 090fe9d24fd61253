"""What our commands say of words that they cannot read, and to a pipe that nobody reads any longer."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from doit.cmd_base import Command
from doit.cmdparse import CmdParseError
from doit.exceptions import InvalidCommand

from opmatrix.errors import OpmatrixError, UsageError, did_you_mean


class CommandBase(Command):
    """doit 0.37 answers an unknown option with the constructors of all options, and any mistake with 3."""

    def parse_execute(self, in_args: Sequence[str]) -> Any:
        try:
            return super().parse_execute(in_args)
        except CmdParseError as error:
            if {"-h", "--help"} & {*in_args}:  # doit has `help COMMAND` alone
                print(self.help())
                return 0
            print(f"doit {self.name}: {_words(str(error), self.cmd_options)}", file=sys.stderr)
        except InvalidCommand as error:
            error.cmd_used, error.bin_name = self.name, self.bin_name
            print(f"doit {self.name}: {error}", file=sys.stderr)
        except OpmatrixError as error:
            print(error, file=sys.stderr, flush=True)
            return error.exit_code
        return UsageError.exit_code


def quiet_pipe() -> None:
    """End like other programs where a reader has gone, as in `doit list --all | head`, without a traceback."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def _words(error: str, options: Sequence[Mapping[str, Any]]) -> str:
    """Return what doit's parser says, in the words of a command line. `options` are those of the command itself."""
    longs = {option["name"]: f"--{option['long']}" for option in options if option.get("long")}
    if value := re.match(r"Error parsing parameter '(\w+)' <class '(\w+)'>\.\s*(.*?)\s*$", error, re.DOTALL):
        kind = {"int": "a whole number", "float": "a number"}.get(value[2], value[2])
        return f"{longs.get(value[1], value[1])} takes {kind}: {value[3]}"
    found = error.removeprefix("Error parsing Command: ").partition(" (parsing options")[0]
    if not (given := re.search(r"option (-\S+)", found)):
        return found
    return f"{found}{did_you_mean(given[1], longs.values())}; allowed: {', '.join(longs.values()) or 'none'}"
