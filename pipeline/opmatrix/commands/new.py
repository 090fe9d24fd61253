"""`doit new`: write the files of an operator or of a project, which opmatrix.scaffold renders. A doit command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import UsageError, printable
from opmatrix.commands.base import CommandBase, as_typed
from opmatrix.commands.base import option as _option
from opmatrix.commands.main import doit_command
from opmatrix.project.paths import Paths
from opmatrix.project.settings import check_format, find_root


class New(CommandBase):
    """Load no tasks, so that a mistake in one operator does not prevent a new one."""

    name = "new"
    doc_purpose = "write a new operator that passes all gates; TODOs mark what to write"
    doc_usage = (
        "[--schema SCHEMA | --override aten::NAME | --from-onnx FILE] [--domain DOMAIN] | [--project DIR] [--ci github]"
    )
    doc_description = (
        "Declaration, cases, reference, README and kernel: of a torch schema, of an operator of torch's own, or of "
        "the nodes of a model that ONNX Runtime does not have. Without any of them it prompts, in a terminal. Or, with "
        "--project, the folder of a project for operators of your own. Nothing is overwritten. Rejected, with the "
        "column: a name in the schema that torch reads nowhere as one, such as for, class, None or is, and one that "
        "torch.ops has for itself, such as my::name. Where a name is a keyword of Python, such as lambda, the part is "
        "lambda_ and keeps its name in ONNX. With --from-onnx, an operator whose folder would be that of another one, "
        "ops/foo, is in ops/foo_2, and a note says so. Exit codes: 0 written, 2 rejected, 130 interrupted."
    )
    cmd_options = (
        _option("schema", "torch schema, such as 'my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor'"),
        _option("domain", "ONNX domain of its node, such as my.domain"),
        _option("name", "name of its folders and its kernel; otherwise the schema's"),
        _option(
            "op_type", "name of its node in ONNX, otherwise ScaleShift for scale_shift; with --from-onnx, which one"
        ),
        _option("override", "an operator of torch's own, such as aten::sinc, to be exported as one of yours"),
        _option("from_onnx", "a model: declare each operator in it that neither ONNX nor ONNX Runtime has"),
        _option("project", "a folder, new or empty, which becomes a project; --name is that of its wheel"),
        _option("ci", "github: a workflow that verifies the operators, of a new project or of the one that is there"),
    )

    def parse_execute(self, in_args: Sequence[str]) -> int:
        try:
            return int(super().parse_execute(as_typed(in_args, command=self.name)))
        except (KeyboardInterrupt, EOFError):
            print("\ndoit new: interrupted; nothing was written", file=sys.stderr)
            return 130

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        if args:
            raise UsageError(f"doit new: found {' '.join(args)!r}, allowed: options alone. Put the schema in quotes")
        options = {option["name"]: params[option["name"]].strip() for option in self.cmd_options}
        folder, ci = options.pop("project"), options.pop("ci")
        if folder or ci:
            return _project(folder, options, ci=ci)
        return _operator(options)


def _operator(options: Mapping[str, str]) -> int:
    # Imported here: they import jinja2, which no other command needs.
    from opmatrix.scaffold import new_operator, render

    paths, request = Paths(find_root(Path.cwd())), new_operator.Request(**options)
    check_format(paths.root)
    if sys.stdin.isatty() and sys.stdout.isatty():
        request = new_operator.complete(request)
    drafts = new_operator.drafts(paths, request)
    render.require_absent(paths, [draft.spec for draft in drafts])
    files = render.formatted(paths.root, {p: text for draft in drafts for p, text in render.render(draft).items()})
    render.write(paths, files)
    for line in new_operator.summary(drafts, files, run=doit_command(paths.root)):
        print(printable(line))
    return 0


def _project(asked: str, options: Mapping[str, str], *, ci: str) -> int:
    """Write a project into the folder `asked`, or only the workflow of the service `ci` into the project."""
    from opmatrix.scaffold import new_project  # as above

    own = ["name"] if asked else []
    if others := [f"--{name.replace('_', '-')}" for name, value in options.items() if value and name not in own]:
        makes = "--project makes a folder" if asked else "--ci writes a workflow"
        raise UsageError(f"{makes}, and operators come into it later: leave out {', '.join(others)}")
    if not asked:
        root = find_root(Path.cwd())
        print(f"wrote {new_project.write_workflow(root, ci)}")
        if note := new_project.where_unread(root):
            print(printable(note))
        return 0
    folder = Path(os.path.abspath(Path(asked).expanduser()))  # noqa: PTH100 - resolve() would follow links
    name = new_project.name_of(folder, options["name"])
    new_project.require_new_folder(folder)
    files = new_project.render(name, ci=ci)
    new_project.write(folder, files)
    for line in new_project.summary(Path(asked), files, name=name):
        print(printable(line))
    return 0
