"""The page about commands and settings, from the programs themselves: argparse, doit's commands, ./run."""

from __future__ import annotations

import argparse
import ast
import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from doit.doit_cmd import get_loader

from opmatrix.addons.mutate.command import Scores
from opmatrix.basics import errors
from opmatrix.commands import main as doit_help
from opmatrix.commands import stages as cli
from opmatrix.commands.main import Program
from opmatrix.engine.tasks import GROUPS
from opmatrix.project.measured import Matrix
from opmatrix.project.settings import Opsets, StepLimits, key_of
from opmatrix.report.operator_pages import code, codes, plain, table
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.wheel.settings import Dist


def _explained(kind: Any) -> Iterator[tuple[str, str]]:
    """Yield the keys of a table of settings, each with the string below its field."""
    keys, name = {one.name: key_of(one) for one in fields(kind)}, ""
    for node in ast.walk(ast.parse(inspect.getsource(kind))):
        if isinstance(node, ast.AnnAssign):
            name = keys.get(ast.unparse(node.target), "")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and name:
            yield name, str(node.value.value)


SETTINGS: Mapping[str, Mapping[str, str]] = {
    "tool.opmatrix": {"format": "which imports and names the files of the project have; `opmatrix update` raises it"}
} | {
    f"tool.opmatrix.{kind.TABLE}": dict(_explained(kind))
    for kind in (Opsets, Matrix, StepLimits, CacheSettings, Scores, Dist)
}
# `doit help` explains its own codes, and the first lines of ./run those of ./run.
MORE_VARIABLES = {
    "NINJA": "ninja, if it is not the one that is installed",
    "OPMATRIX_CPU_LEVEL": "in each process that loads a library: the highest level of x86-64 at which a kernel with "
    "`cpu_levels=True` runs, 2, 3 or 4; unset: the highest that the processor has",
    "LC_ALL, LANG, PYTHONUTF8": "the locale: in one without UTF-8, such as with `LC_ALL=C PYTHONUTF8=0`, a command "
    "starts again in Python's UTF-8 mode",
    "OPMATRIX_TORCH_WHEELS": "for tests/other_versions alone: a folder with wheels of torch",
    "OPMATRIX_TOOLS": "for tests alone: a folder with the packages of requirements/wheel.txt or cache.txt",
    "OPMATRIX_BAZEL_REMOTE": "for tests of the shared cache alone: the program bazel-remote, if it is not on PATH",
    "OPMATRIX_NGINX": "for tests of the shared cache alone: nginx, if it is not on PATH",
    "OPMATRIX_ENVIRONMENTS": "for tests/wheel alone: environments to try the wheel in",
    "OPMATRIX_REPOSITORY": "for the site alone: the address that links to files of the repository lead to",
}


def render(root: Path) -> str:
    """Return the page; `root` is the checkout, whose pyproject.toml has doit's settings."""
    parts = [
        "# Commands and settings",
        "In a checkout, each command begins with `./run`; in a project of your own, leave it out.",
        "## ./run",
        f"```text\n{_header((root / 'run').read_text())}\n```",
        "## doit",
        "\n".join(_list((f"doit {form}".strip(), text) for form, text in doit_help.FORMS)),
        "Exit codes:",
        table(("code", "meaning"), [(code(number), plain(text)) for number, text in doit_help.EXIT_CODES]),
        *_doit_commands(root),
        "## Tasks",
        "In the order of the data. `doit list --all` names each step, such as `compile:group_norm`.",
        table(("task", "what it does"), [(code(name), plain(text)) for name, text in GROUPS.items()]),
        "## python -m opmatrix",
        "Each stage by hand, as doit runs it.",
        *_stages(),
        "Exit codes, in addition to 0 and 1:",
        table(("code", "meaning"), [(code(e.exit_code), plain(inspect.getdoc(e) or "")) for e in _errors()]),
        "## Settings in pyproject.toml",
        *(f"`[{name}]`\n\n{_two(rows)}" for name, rows in SETTINGS.items()),
        "## Environment variables",
        _two({name: text for name, text in doit_help.VARIABLES if name != "CXX, NINJA"} | MORE_VARIABLES),
        "In addition, those of `./run` above: `OPMATRIX_PYTHON`, `OPMATRIX_TORCH_INDEX`, `CXX`, and pip's own.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(script: str) -> str:
    """Return the comment that a script begins with."""
    lines = script.splitlines()[1:]
    end = next(n for n, line in enumerate(lines) if not line.startswith("#"))
    return "\n".join(line[2:] for line in lines[:end])


def _list(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for left, right in rows:
        yield f"- {code(left)}: {plain(right)}"


def _two(rows: Mapping[str, str]) -> str:
    return table(("name", "meaning"), [(code(name), plain(text)) for name, text in rows.items()])


def _doit_commands(root: Path) -> Iterator[str]:
    """Yield a section for each command of doit, in the order of `doit help`."""
    with contextlib.chdir(root):  # doit reads the pyproject.toml of the current folder
        main = Program()
    found = main.get_cmds()
    loader = get_loader(main.config, main.task_loader, found)
    first = [*doit_help.EVERY_DAY, *doit_help.STATE, *doit_help.ABOUT]
    for name in (*first, *(n for n in found if n not in first)):
        kind = found.get_plugin(name)
        command = kind(task_loader=loader, config=main.config, bin_name="doit", cmds=found)
        # A section such as "DB backend" has options of doit that opmatrix sets: where the state is kept.
        options = [_doit_option(o, command.config_vals) for o in command.get_options() if not o.section]
        yield f"### doit {name}"
        yield code(f"doit {name} {kind.doc_usage}".strip()) + ": " + plain(kind.doc_purpose) + "."
        if kind.doc_description and name in doit_help.EVERY_DAY:
            yield plain(kind.doc_description)
        yield table(("option", "default", "meaning"), options)


def _doit_option(option: Any, settings: Mapping[str, Any]) -> tuple[str, str, str]:
    names = [f"-{option.short}"] if option.short else []
    names += [f"--{option.long}"] if option.long else []
    default = settings.get(option.name, option.default)
    shown = "stdout" if option.name == "outfile" else "" if default in (None, False) else default
    choices = f"; one of {codes(option.choices)}" if option.choices else ""
    said = re.sub(r"\s*\[default: %\(default\)s\]", "", option.help)
    return code(", ".join(names)), code(shown), plain(said % {"default": default}) + choices


def _stages() -> Iterator[str]:
    parser = cli._parser()
    (stages,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for name, stage in stages.choices.items():
        yield f"### {name}"
        usage = " ".join(stage.format_usage().split()).removeprefix("usage: ").replace(" [-h]", "")
        yield f"{plain(stage.description or '')}:\n\n```text\n{usage}\n```"
        yield table(("argument", "allowed", "meaning"), [_argument(a) for a in stage._actions if a.dest != "help"])


def _argument(action: argparse.Action) -> tuple[str, str, str]:
    names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
    choices = ", ".join(map(code, action.choices)) if action.choices else ""
    default = f" (default {code(action.default)})" if isinstance(action.default, str) and action.default else ""
    return code(names), choices, plain(action.help or "") + default


def _errors() -> list[type[errors.OpmatrixError]]:
    found = [e for e in vars(errors).values() if inspect.isclass(e) and issubclass(e, errors.OpmatrixError)]
    return sorted((e for e in found if e.exit_code > 1), key=lambda e: e.exit_code)


def variables_in(text: str) -> set[str]:
    """Return the variables of opmatrix that a string names."""
    return set(re.findall(r"OPMATRIX_[A-Z_]+[A-Z]", text))
