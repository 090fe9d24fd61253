"""Is the code that opmatrix generates still the same? For the C++ and the Python of every operator at hand.

    ./run python benchmarks/generated.py 71b51ad8             against the digests in benchmarks/generated/71b51ad8.json
    ./run python benchmarks/generated.py 71b51ad8 --diff      against what that revision generates, line by line
    ./run python benchmarks/generated.py 71b51ad8 --write     stores the digests of what that revision generates

The operators are those of ops/, examples/ and tests/projects/ (with those of the seeds) of that revision. It is cloned
to a temporary folder, and gets an environment of its own, from its own pins; with --here it runs in the current one.
With --only so does one folder of operators. The exit code is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from against import clone, python_of
from measuring import ROOT

STORED = ROOT / "benchmarks/generated"
Generated = Mapping[str, Mapping[str, bytes]]  # by project/operator, and by name of the file


def projects(checkout: Path) -> Iterator[tuple[str, Path]]:
    """Yield the folders of a checkout that have operators, by name."""
    for folder in (
        checkout,
        *sorted((checkout / "examples").iterdir()),
        *sorted((checkout / "tests/projects").iterdir()),
    ):
        if (folder / "ops").is_dir():
            yield folder.relative_to(checkout).as_posix(), folder


def generate(operators: Path, python: Sequence[str], into: Path, *, only: str | None) -> dict[str, dict[str, bytes]]:
    """Return what an opmatrix generates for the operators of a checkout."""
    by_operator: dict[str, dict[str, bytes]] = {}
    for name, folder in projects(operators):
        if only not in (None, name):
            continue
        project = into / name.replace("/", "-").replace(".", "root")
        project.mkdir(parents=True)
        for part in ("ops", "native", "third_party"):
            if (folder / part).is_dir():
                shutil.copytree(folder / part, project / part)
        for file in ("dodo.py", "pyproject.toml"):
            own = folder / file
            shutil.copy(own if own.is_file() else operators / file, project / file)
        done = subprocess.run(
            [*python, "-m", "doit", "-n", "2", "codegen"], cwd=project, capture_output=True, text=True
        )
        if done.returncode:
            sys.exit(f"generated.py: doit codegen in {name}:\n{done.stdout}{done.stderr}")
        for path in sorted((project / "build/generated").rglob("*")):
            if path.is_file():
                operator, _, file = path.relative_to(project / "build/generated").as_posix().partition("/")
                by_operator.setdefault(f"{name}/{operator}", {})[file] = path.read_bytes()
        print(f"{name}: {len([*(project / 'build/generated').iterdir()])} operators", file=sys.stderr)
    return by_operator


def digests(code: Generated) -> dict[str, dict[str, str]]:
    return {
        operator: {file: hashlib.sha256(text).hexdigest()[:16] for file, text in sorted(files.items())}
        for operator, files in sorted(code.items())
    }


def different(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return ``project/operator/file`` of what differs, of either side."""
    files = {(operator, file) for side in (before, after) for operator, names in side.items() for file in names}
    return [f"{o}/{f}" for o, f in sorted(files) if before.get(o, {}).get(f) != after.get(o, {}).get(f)]


def lines_between(before: Generated, after: Generated, path: str) -> Iterator[str]:
    """Yield the lines that differ in a file."""
    operator, file = next((o, path[len(o) + 1 :]) for o in {*before, *after} if path.startswith(f"{o}/"))
    old, new = (code.get(operator, {}).get(file, b"").decode().splitlines() for code in (before, after))
    return difflib.unified_diff(old, new, f"{path}, before", f"{path}, now", lineterm="", n=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision", metavar="REV", help="a git revision, such as one whose digests are stored")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--write", action="store_true", help="store its digests")
    choice.add_argument("--diff", action="store_true", help="print the lines that differ from what it generates")
    parser.add_argument("--here", action="store_true", help="run the revision in the current environment")
    parser.add_argument("--only", metavar="FOLDER", help="such as tests/projects/minimal")
    options = parser.parse_args()
    command = ["git", "rev-parse", "--short=8", f"{options.revision}^{{commit}}"]
    revision = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    stored = STORED / f"{revision}.json"
    if not stored.is_file() and not (options.write or options.diff):
        sys.exit(f"generated.py: there is no {stored.relative_to(ROOT)}; --write makes it")
    with tempfile.TemporaryDirectory(prefix="opmatrix-generated-") as name:
        folder = Path(name)
        checkout = clone(revision, folder / "checkout")
        before: dict[str, dict[str, bytes]] = {}
        if options.write or options.diff:
            before = generate(checkout, python_of(checkout, here=options.here), folder / "before", only=options.only)
        if options.write:
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(json.dumps(digests(before), indent=1) + "\n")
            return 0
        expected = digests(before) if options.diff else json.loads(stored.read_text())
        after = generate(checkout, (sys.executable,), folder / "now", only=options.only)
    changed = different(expected, digests(after))
    for path in changed:
        print(*lines_between(before, after, path), sep="\n") if options.diff else print(f"differs: {path}")
    count = sum(map(len, expected.values()))
    print(f"{count - len(changed)} of {count} files are equal to those of {revision}")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
