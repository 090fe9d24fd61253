"""Run the Python blocks of a page in one namespace: one request per line on stdin, one answer per line on a descriptor.

It is a separate program, which imports nothing of this project: a page sees the same Python as a user.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from types import ModuleType


def main(descriptor: int) -> None:
    """Answer each request, ``{"path", "line", "text"}``, with the traceback of the exception, or ""."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.path[0] = os.getcwd()  # noqa: PTH109  # a path as Python itself has it there
    page = sys.modules["__main__"] = ModuleType("__main__")
    for request in map(json.loads, requests):
        answer = ""
        try:
            # Empty lines come first: so a traceback names the line of the page, and linecache finds its text there.
            text = "\n" * (request["line"] - 1) + request["text"]
            exec(compile(text, request["path"], "exec"), page.__dict__)
        except BaseException as error:  # every exception of a block is reported, also SystemExit
            ours = error.__traceback__
            answer = "".join(traceback.format_exception(type(error), error, ours and ours.tb_next))
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(descriptor, (json.dumps(answer) + "\n").encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
