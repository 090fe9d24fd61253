"""The size and the shape of the project: lines, modules, functions, rooms, their imports, and the circles of them.

    ./run python benchmarks/structure.py                    the working tree
    ./run python benchmarks/structure.py 71b51ad8 HEAD      revisions, then the working tree
    ./run python benchmarks/structure.py --tests 71b51ad8   what became of the test functions of a revision


git reads the revisions without a checkout. Lines are those of files that git has, blank ones and comments included. The
core is the Python below pipeline/ without its folder `addons`; tests are the Python below tests/, and other sources and
tables there. Vendored files and the generated pages of docs/reference are not counted. A room is a folder or a module
at the top of the package, or an addon; an arrow means that one room imports another, anywhere in a file; a circle is a
group of rooms, or of files, that import each other, directly or indirectly. A test function is kept if one of its name
is still there, maybe in another file; lost_tests.toml has into what another one was merged, or why it was dropped.
"""

from __future__ import annotations

import argparse
import ast
import io
import statistics
import subprocess
import sys
import tarfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from docs.site.imports import ADDONS, FOLDER, Package, cycles  # noqa: E402  # docs/ is importable from the root alone

TEMPLATES = (".j2", ".html", ".css")
DATA = (".toml", ".yaml", ".yml", ".json", ".txt", ".c", ".cc", ".h", ".cu")  # of tests


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What is counted of one tree: the text of its files, by path."""

    files: Mapping[str, str]

    @cached_property
    def package(self) -> Package:
        return Package.of(self.python(FOLDER))

    def python(self, folder: str) -> dict[str, str]:
        return {
            path: text for path, text in self.files.items() if path.startswith(f"{folder}/") and path.endswith(".py")
        }

    def lines(self, folder: str, *endings: str, without: str = "/ /") -> int:
        """Return the lines of files below a folder with one of these endings, but for those below `without`."""
        paths = (path for path in self.files if path.startswith(f"{folder}/") and path.endswith(endings))
        return sum(self.files[path].count("\n") for path in paths if without not in path)

    @cached_property
    def test_functions(self) -> dict[str, list[str]]:
        """Return the files that have a test function of a name, by that name: one for each function."""
        files = defaultdict(list)
        for path, text in self.python("tests").items():
            for node in functions_of(ast.parse(text)):
                if node.name.startswith("test_"):
                    files[node.name].append(path)
        return files

    def row(self) -> dict[str, str]:
        package = self.package
        texts = package.modules.values()
        lengths = [text.count("\n") for text in texts]
        trees = [ast.parse(text) for text in texts]
        functions = [length(node) for tree in trees for node in functions_of(tree)]
        imports = sum(length(node) for tree in trees for node in ast.walk(tree) if is_import(node))
        arrows = package.arrows()
        pages = [path for path in self.files if path.startswith("docs/") and path.endswith(".md")]
        return {
            "core, lines": f"{self.lines(FOLDER, '.py', without=f'/{ADDONS}/'):,}",
            "addons, lines": f"{self.lines(f'{FOLDER}/opmatrix/{ADDONS}', '.py'):,}",
            "templates, lines": f"{self.lines(FOLDER, *TEMPLATES):,}",
            "js, lines": f"{self.lines(FOLDER, '.js'):,}",
            "tests, lines of Python": f"{self.lines('tests', '.py'):,}",
            "tests, lines of other files": f"{self.lines('tests', *DATA):,}",
            "test functions": f"{sum(map(len, self.test_functions.values())):,}",
            "pages, lines": f"{sum(self.files[path].count(chr(10)) for path in pages):,}",
            "pages": f"{len(pages)}",
            "modules": f"{len(lengths)}",
            "median lines of a module": f"{statistics.median(lengths):g}",
            "functions": f"{len(functions):,}",
            "median lines of a function": f"{statistics.median(functions or [0]):g}",
            "functions in 1,000 lines": f"{1000 * len(functions) / sum(lengths):.0f}",
            "imports, share of lines": f"{imports / sum(lengths):.1%}",
            "rooms": f"{len([room for room in package.rooms if not room.startswith(ADDONS)])}",
            "of them loose modules": f"{len(package.loose())}",
            "arrows between rooms": f"{len(arrows)}",
            "circles of rooms": f"{len(cycles(arrows))}",
            "circles of files": f"{len(cycles(package.module_arrows()))}",
        }

    def circles(self) -> Iterator[str]:
        """Yield the circles, and the imports that go both ways of those between rooms."""
        arrows = self.package.arrows()
        for group in cycles(arrows):
            yield f"a circle of rooms: {', '.join(group)}"
            for (importing, imported), lines in arrows.items():
                if (imported, importing) in arrows and {importing, imported} <= {*group}:
                    yield f"  {importing} -> {imported}: {lines[0]}"
        for group in cycles(self.package.module_arrows()):
            yield f"a circle of files: {', '.join(group)}"


def lost_tests(old: Structure, new: Structure) -> Iterator[str]:
    """Yield the test functions of `old` of which `new` has fewer of their name, ``tests/a.py::test_b``."""
    for name, paths in old.test_functions.items():
        now = new.test_functions.get(name, [])
        gone = [path for path in paths if path not in now]  # of as many as are missing; a moved one is in another file
        yield from (f"{path}::{name}" for path in gone[: max(0, len(paths) - len(now))])


def print_tests(revision: str, old: Structure, new: Structure) -> int:
    """Print what became of each test function; the exit code is 1 if lost_tests.toml does not say it of one."""
    told = tomllib.loads((ROOT / "benchmarks/lost_tests.toml").read_text(encoding="utf-8"))
    known = {test: fate for fate, tests in told.items() for test in tests}
    lost, total = [*lost_tests(old, new)], sum(map(len, old.test_functions.values()))
    print(f"{total:,} test functions at {revision}: {total - len(lost):,} kept")
    for test in sorted(lost):
        print(f"{test}: {known.get(test, 'NOT IN lost_tests.toml')}")
    return int(not known.keys() >= {*lost})


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_import(node: ast.AST) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def length(node: ast.AST) -> int:
    """Return the lines of a statement, without its decorators."""
    assert isinstance(node, ast.stmt)
    return (node.end_lineno or node.lineno) - node.lineno + 1


def at_revision(revision: str) -> dict[str, str]:
    """Return the files of a git revision. Raises subprocess.CalledProcessError for an unknown one."""
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", revision]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        members = [member for member in archive if member.isfile() and is_counted(member.name)]
        return {m.name: file.read().decode() for m in members if (file := archive.extractfile(m))}


def in_working_tree() -> dict[str, str]:
    """Return the files of the working tree that git has or would add."""
    command = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    return {n: (ROOT / n).read_text(encoding="utf-8") for n in names if is_counted(n) and (ROOT / n).is_file()}


def is_counted(path: str) -> bool:
    if not path.endswith((".py", ".md", ".js", *TEMPLATES, *DATA)) or path.startswith("docs/reference/"):
        return False
    parts = PurePosixPath(path).parts
    return parts[0] in (FOLDER, "tests", "docs") and "vendored" not in parts


def table(rows: Mapping[str, Mapping[str, str]], labels: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table, one column for each tree."""
    left = max(map(len, labels))
    widths = {name: max(len(name), *map(len, row.values())) for name, row in rows.items()}
    yield " " * left + "".join(f"  {name:>{widths[name]}}" for name in rows)
    for label in labels:
        yield f"{label:<{left}}" + "".join(f"  {row[label]:>{widths[name]}}" for name, row in rows.items())


def structures(revisions: Iterable[str]) -> Iterator[tuple[str, Structure]]:
    for revision in revisions:
        try:
            yield revision, Structure(files=at_revision(revision))
        except subprocess.CalledProcessError as error:
            sys.exit(f"structure.py: {revision}: {error.stderr.decode().strip()}")
    yield "working tree", Structure(files=in_working_tree())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revisions", nargs="*", metavar="REV", help="a git revision")
    parser.add_argument("--tests", metavar="REV", help="print what became of the test functions of a revision")
    arguments = parser.parse_args()
    if arguments.tests:
        return print_tests(arguments.tests, *dict(structures([arguments.tests])).values())
    trees = dict(structures(arguments.revisions))
    rows = {name: tree.row() for name, tree in trees.items()}
    print(*table(rows, list(rows["working tree"])), sep="\n")
    for name, tree in trees.items():
        for line in tree.circles():
            print(f"{name}: {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
