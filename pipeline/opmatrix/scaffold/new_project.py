"""`doit new --project`: the files of a new project. All are written or none, and none is overwritten."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.codegen import jinja
from opmatrix.project.cells import TORCH
from opmatrix.project.settings import check_path, installed, is_project
from opmatrix.scaffold.new_operator import EXAMPLE
from opmatrix.wheel.settings import why_no_name

# dodo.py makes a folder a project, so it is first here and written last. The first operator brings ops/ and native/,
# because git keeps no empty folder.
_FILES = ("dodo.py", "pyproject.toml", "tox.ini", "toxfile.py", ".gitignore", "README.md")
WORKFLOW = ".github/workflows/opmatrix.yml"
_MAY_EXIST = (".git", ".venv")  # in the folder, before it becomes a project
_NOTHING = "Nothing was written."


def render(name: str, *, ci: str = "") -> dict[str, str]:
    """Return the text of every file of a project by its path. `name` is the name of its wheel, `ci` the service whose
    workflow is among them. Raises UsageError for an unknown service."""
    environment = jinja.environment("opmatrix.scaffold")
    files = {file: environment.get_template(f"project/{file.lstrip('.')}.j2").render(name=name) for file in _FILES}
    return files | (workflow(ci) if ci else {})


def workflow(ci: str) -> dict[str, str]:
    """Return the text of the workflow of a service by its path. Raises UsageError for an unknown service."""
    if ci != "github":
        raise UsageError(f"--ci: found {ci!r}{did_you_mean(ci, ['github'])}; allowed: github. {_NOTHING}")
    template = jinja.environment("opmatrix.scaffold").get_template("project/opmatrix.yml.j2")
    torch = installed().torch.partition("+")[0]
    return {WORKFLOW: template.render(opmatrix=metadata.version("opmatrix"), torch=torch, torches=[*TORCH])}


def write_workflow(root: Path, ci: str) -> str:
    """Write the workflow of a service into a project; return its path there. Raises UsageError if there is one."""
    (path, text), *_ = workflow(ci).items()
    if (root / path).exists():
        raise UsageError(f"--ci {ci}: {path} is there already, and nothing is overwritten. Remove or rename it")
    write(root, {path: text}, option=f"--ci {ci}:")
    return path


def where_unread(root: Path) -> str:
    """Return what to do with the workflow if the project is not at the top of its repository, or ""."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), root)
    if top == root:
        return ""
    below = root.relative_to(top)
    return (f"GitHub reads workflows at the top of a repository only: move {WORKFLOW} to {top}, and add to each job: "
            f"defaults: {{run: {{working-directory: {below}}}}}")  # fmt: skip


def name_of(folder: Path, asked: str) -> str:
    """Return the name of the wheel: `asked`, or else from the folder's name. Raises UsageError for an invalid one."""
    name = asked or re.sub(r"[-_. ]+", "_", folder.name).lower()
    if why := why_no_name(name):
        where = f"--name {asked}" if asked else f"--project {folder.name}: the folder's name is the package's"
        other = "" if asked else ". Give another one with --name"
        raise UsageError(f"{where}: found {name!r}, {why}{other}. {_NOTHING}")
    return name


def require_new_folder(folder: Path) -> None:
    """Raise UsageError for a folder inside a project, a file, a folder that is not empty, or one with an odd path."""
    check_path(folder)
    for parent in folder.parents:
        if is_project(parent):
            raise UsageError(f"--project {folder}: it would be inside the project {str(parent)!r}, whose operators are "
                             f"written there by `doit new`. Choose a folder outside. {_NOTHING}")  # fmt: skip
    try:
        if not folder.exists() and not folder.is_symlink():
            return
    except OSError as error:  # a name that is too long
        raise UsageError(f"--project {folder}: {error.strerror}. {_NOTHING}") from error
    if not folder.is_dir():
        raise UsageError(f"--project {folder}: it is a file. Choose another name. {_NOTHING}")
    if found := sorted(p.name for p in folder.iterdir() if p.name not in _MAY_EXIST):
        shown = ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")
        raise UsageError(f"--project {folder}: it contains {shown}, and nothing is overwritten. Choose a folder that "
                         f"is new, or contains only {' and '.join(_MAY_EXIST)}. {_NOTHING}")  # fmt: skip


def write(folder: Path, files: Mapping[str, str], *, option: str = "--project") -> None:
    """Create `folder` and write `files` into it, the first one last. Raises UsageError if that fails."""
    made: list[Path] = []
    try:
        for name, text in reversed([*files.items()]):
            for missing in [p for p in reversed((folder / name).parents) if not p.exists()]:
                missing.mkdir()
                made.append(missing)
            with (folder / name).open("x", encoding="utf-8") as file:
                made.append(folder / name)
                file.write(text)
    except BaseException as error:  # Ctrl-C too: a partial project would be invalid
        for path in reversed(made):
            with suppress(OSError):  # another process has put a file there meanwhile
                path.rmdir() if path.is_dir() else path.unlink()
        if not isinstance(error, OSError):
            raise
        where = f": {error.filename!r}" if error.filename else ""
        raise UsageError(f"{option} {folder}: {error.strerror}{where}. {_NOTHING}") from error


def summary(folder: Path, files: Iterable[str], *, name: str) -> Iterator[str]:
    """Yield the lines to print after `files` are written."""
    yield from (f"wrote {folder / file}" for file in files)
    yield f"{name}: a project without operators; the wheel that `doit dist` makes of them is {name}"
    yield f"next: cd {shlex.quote(str(folder))}"
    yield f"then: doit new --schema '{EXAMPLE}' --domain my.domain"
