"""The files of a project of one's own, and how they get into its folder: all of them or none, and over nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from opmatrix.codegen import jinja
from opmatrix.errors import UsageError
from opmatrix.project.settings import is_project
from opmatrix.scaffold.prompt import EXAMPLE
from opmatrix.wheel.settings import why_no_name

# By the file that each template becomes, first the one that makes a folder a project. ops/ and native/ come with the
# first operator: git keeps no empty folder.
TEMPLATES: Mapping[str, str] = {
    "dodo.py": "dodo.py.j2",
    "pyproject.toml": "pyproject.toml.j2",
    "tox.ini": "tox.ini.j2",
    "toxfile.py": "toxfile.py.j2",
    ".gitignore": "gitignore.j2",
    "README.md": "README.md.j2",
}
# What may be in the folder before.
_KEPT = (".git", ".venv")
_NOTHING = "Nothing was written."


def render(name: str) -> dict[str, str]:
    """Return the text of every file of a project by its name; `name` is what its wheel is called."""
    environment = jinja.environment("opmatrix.scaffold")
    return {
        file: environment.get_template(f"project/{template}").render(name=name) for file, template in TEMPLATES.items()
    }


def name_of(folder: Path, asked: str) -> str:
    """Return the name of the wheel: as asked for, or that of the folder. Raises UsageError for none that can be."""
    name = asked or re.sub(r"[-_. ]+", "_", folder.name).lower()
    if why := why_no_name(name):
        where = f"--name {asked}" if asked else f"--project {folder.name}: the folder's name is the package's"
        other = "" if asked else ". Give another one with --name"
        raise UsageError(f"{where}: found {name!r}, {why}{other}. {_NOTHING}")
    return name


def refuse_what_is_there(folder: Path) -> None:
    """Raise UsageError for a folder that is not to become a project."""
    for parent in folder.parents:
        if is_project(parent):
            raise UsageError(f"--project {folder}: it would be inside the project {str(parent)!r}, whose operators are "
                             f"written there by `doit new`. Choose a folder outside. {_NOTHING}")  # fmt: skip
    if not folder.exists() and not folder.is_symlink():
        return
    if not folder.is_dir():
        raise UsageError(f"--project {folder}: it is a file. Choose another name. {_NOTHING}")
    if found := sorted(p.name for p in folder.iterdir() if p.name not in _KEPT):
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise UsageError(f"--project {folder}: it holds {shown}, and nothing is overwritten. Choose a folder that is "
                         f"new, or holds no more than {' and '.join(_KEPT)}. {_NOTHING}")  # fmt: skip


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`, which is made, the first one last. Raises UsageError where that cannot be."""
    made: list[Path] = []
    try:
        for missing in [p for p in (*reversed(folder.parents), folder) if not p.exists()]:
            missing.mkdir()
            made.append(missing)
        for name, text in reversed([*files.items()]):
            with (folder / name).open("x", encoding="utf-8") as file:  # it takes nobody's place
                made.append(folder / name)
                file.write(text)
    except BaseException as error:  # Ctrl-C as well: half a project would be one with mistakes
        for path in reversed(made):
            with suppress(OSError):  # somebody else has put a file there meanwhile
                path.rmdir() if path.is_dir() else path.unlink()
        if not isinstance(error, OSError):
            raise
        where = f": {error.filename!r}" if error.filename else ""
        raise UsageError(f"--project {folder}: {error.strerror}{where}. {_NOTHING}") from error


def said(folder: Path, files: Iterable[str], *, name: str) -> Iterator[str]:
    """Yield what a person is told once the files are written."""
    yield from (f"wrote {folder / file}" for file in files)
    yield f"{name}: a project without operators; the wheel that `doit dist` makes of them is {name}"
    yield f"next: cd {shlex.quote(str(folder))}"
    yield f"then: doit new --schema '{EXAMPLE}' --domain my.domain"
