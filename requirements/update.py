"""Raise the pins of torch, onnx, onnxscript and onnxruntime to the newest of the package index, with their matrix rows.

    ./run python requirements/update.py                  change the files, and print the change as a pull request
    ./run python requirements/update.py --dry-run        only print it
    ./run python requirements/update.py --index URL      take versions and packages from this index alone
    ./run python requirements/update.py --skip-probe     leave the rows of the matrix as their neighbours' are

onnx and onnxscript are raised wherever main.in's version is pinned; another pin has a reason of its own. A patch
release of torch or ONNX Runtime raises the pin of its row. A newer minor gets a row: first the pins and the limits of
the newest row before it, then the limits that `doit probe` measures. No row is removed, and .venv keeps its minor
versions: a person decides that. docs/how-to/new-torch-version.md says more.

All of this happens in a copy of the checkout, which makes its own environments; the files come back when everything has
worked, all or none. uv makes the locks, by the command in each one's first lines.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.version import Version

from opmatrix.basics.files import write_bytes
from opmatrix.environments.pip_install import TORCH_INDEX
from opmatrix.project.cells import Ort
from opmatrix.project.measured import Export, source, torch_row
from opmatrix.project.paths import Paths

ROOT = Path(__file__).resolve().parents[1]
PINS = Path("requirements")
MATRIX = Path("pipeline/opmatrix/project/cells.py")
COMMON = ("onnx", "onnxscript")
PYTHONS = ("3.11", "3.12", "3.13")  # whose CPU builds of torch torch-cpu.txt names
_FACTORS = {"torch": "torch", "ort": "onnxruntime"}
_TABLES = {"torch": "TORCH", "ort": "ORT"}
_TITLES = {"torch": "torch", "ort": "ONNX Runtime"}


class UpdateError(Exception):
    """Why nothing was changed."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the matrix: one minor version of torch or of ONNX Runtime. Prints as ``torch2.15``."""

    factor: str
    minor: str

    def __str__(self) -> str:
        return f"{self.factor}{self.minor}"

    @classmethod
    def of(cls, factor: str, version: str) -> Row:
        return cls(factor=factor, minor="{0.major}.{0.minor}".format(Version(version)))

    @property
    def pin(self) -> str:
        """The file that pins the version itself."""
        return f"{self}-cpu.txt" if self.factor == "torch" else f"{self}.in"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One package from one version to another: in all files, in those of one row, or in a new row made from `like`."""

    package: str
    old: str
    new: str
    row: Row | None = None
    like: Row | None = None


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """The versions that the files pin: of `main`, and of each row."""

    main: Mapping[str, str]
    rows: Mapping[Row, str]

    @classmethod
    def read(cls, folder: Path) -> Pinned:
        main = pins((folder / "main.in").read_text())
        rows = {}
        for factor, package in _FACTORS.items():
            for path in folder.glob(f"{factor}*.*.in"):
                row = Row(factor=factor, minor=path.stem.removeprefix(factor))
                rows[row] = pins((folder / row.pin).read_text())[package]
        return cls(main={name: version.partition("+")[0] for name, version in main.items()}, rows=rows)


def pins(text: str) -> dict[str, str]:
    """Return the versions that a file of requirements pins, by package."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE))


def plan(pinned: Pinned, newest: Callable[[str], str | None]) -> Iterator[Change]:
    """Yield what is to be raised; `newest` answers requirements such as ``onnx`` and ``torch==2.9.*``."""
    for package in COMMON:
        old = pinned.main[package]
        if Version(new := newest(package) or old) > Version(old):
            yield Change(package=package, old=old, new=new)
    for factor, package in _FACTORS.items():
        rows = {row: version for row, version in pinned.rows.items() if row.factor == factor}
        for row, old in rows.items():
            if Version(new := newest(f"{package}=={row.minor}.*") or old) > Version(old):
                yield Change(package=package, old=old, new=new, row=row)
        last = max(rows, key=lambda row: Version(row.minor))
        row = Row.of(factor, new := newest(package) or rows[last])
        if Version(row.minor) > Version(last.minor):
            yield Change(package=package, old=rows[last], new=new, row=row, like=last)


# The files, in the copy of the checkout.


def write(change: Change, root: Path, pinned: Pinned) -> None:
    """Write one change into the files that are written by hand: .in, -cpu.txt, and a new row of the matrix."""
    folder = root / PINS
    if change.like and change.row:
        _add_row(change, root, like=change.like, row=change.row)
    files = [folder / change.row.pin] if change.row else sorted(folder.glob("*.in"))
    if change.row and pinned.main[change.package] == change.old and not change.like:
        files += [folder / "main.in", *([folder / "torch-cpu.txt"] if change.package == "torch" else [])]
    # A new row may be made from a neighbour that was raised just before.
    old = r"[\d.]+" if change.like else re.escape(change.old)
    pin = re.compile(rf"^{change.package}=={old}(?=\s|\+|$)", re.MULTILINE)
    for path in files:
        path.write_text(pin.sub(f"{change.package}=={change.new}", path.read_text()))
    if change.package in COMMON:
        newest = re.compile(rf'^(NEWEST = .*"{change.package}": )"[\d.]+"', re.MULTILINE)
        minor = "{0.major}.{0.minor}".format(Version(change.new))
        (root / MATRIX).write_text(newest.sub(rf'\g<1>"{minor}"', (root / MATRIX).read_text()))


def _add_row(change: Change, root: Path, *, like: Row, row: Row) -> None:
    """Give a new minor version the files and the row of its neighbour, whose lock keeps uv to the same versions."""
    title, named = (f"{_TITLES[row.factor]} {one.minor}" for one in (like, row))
    for path in sorted((root / PINS).glob(f"{like}*")):
        if path.name.removeprefix(str(like)) in (".in", ".txt", "-cpu.txt"):
            # A comment on a single pin keeps the version that made it so.
            head, body = re.match(r"((?:#.*\n)*)((?s:.*))", path.read_text()).groups()  # type: ignore[union-attr]
            head = re.sub(r"^# The entries of main.txt .*", _GENERATED, head.replace(title, named))
            path.with_name(path.name.replace(str(like), str(row))).write_text(
                head.replace(str(like), str(row)) + body.replace(f"/{like}.in", f"/{row}.in")
            )
    table, key = _TABLES[row.factor], like.minor
    lines = (root / MATRIX).read_text().splitlines(keepends=True)
    first, last = rows_of((root / MATRIX).read_text(), table)[key]
    copied = "".join(lines[first:last]).replace(f'"{key}":', f'"{row.minor}":')
    (root / MATRIX).write_text("".join([*lines[:last], copied, *lines[last:]]))


_GENERATED = "# This file was autogenerated by uv via the following command:"


def rows_of(text: str, table: str) -> dict[str, tuple[int, int]]:
    """Return where each row of a table of matrix.py is: its first line, and the one after its last, from 0."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == table:
            assert isinstance(node.value, ast.Dict)
            keyed = zip(node.value.keys, node.value.values, strict=True)
            return {ast.literal_eval(k): (k.lineno - 1, v.end_lineno or 0) for k, v in keyed if k}
    raise UpdateError(f"{MATRIX} has no table {table}")


def put_row(text: str, row: Row, measured: str) -> str:
    """Return matrix.py with the limits of `measured`, a row as the probe prints it. What it does not measure stays."""
    first, last = rows_of(text, _TABLES[row.factor])[row.minor]
    lines = text.splitlines(keepends=True)
    limits = _keywords(measured)
    before = _keywords("".join(lines[first:last]).strip().rstrip(","))
    if limits.get("no_dynamo") == "...":
        limits["no_dynamo"] = before.get("no_dynamo", '"writes none of the opsets that were tried"')
    kept = {name: value for name, value in before.items() if name == "python"}
    if before == (now := limits | kept):
        return text
    kind = "Torch" if row.factor == "torch" else "Ort"
    written = ", ".join(f"{name}={value}" for name, value in now.items())
    return "".join([*lines[:first], f'    "{row.minor}": {kind}({written}),\n', *lines[last:]])


def _keywords(row: str) -> dict[str, str]:
    found = ast.parse("{" + row + "}", mode="eval").body
    assert isinstance(found, ast.Dict)
    (call,) = found.values
    assert isinstance(call, ast.Call)
    return {k.arg or "": ast.unparse(k.value).replace("'", '"') for k in call.keywords}


# pip and uv.


@dataclass(frozen=True, kw_only=True)
class Index:
    """Where packages come from: one URL alone, or what pip is configured with."""

    url: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of pip and uv: with a URL, no other source counts."""
        sources = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX")
        own = {k: v for k, v in self.environ.items() if not (self.url and k in sources)}
        own = {k: v for k, v in own.items() if k == "UV_CACHE_DIR" or not k.startswith("UV_")}
        return own | ({"PIP_CONFIG_FILE": os.devnull} if self.url else {})

    def newest(self, requirement: str) -> str | None:
        """Return the newest version that ``torch`` or ``torch==2.9.*`` allows and that has a wheel for Linux.

        None where there is none, or only a pre-release.
        """
        asked = ["pip", "compile", "-", "--no-deps", "--no-header", "--no-annotate", "--quiet", "--only-binary",
                 ":all:", "--python-version", PYTHONS[0], "--python-platform", "x86_64-manylinux_2_28"]  # fmt: skip
        try:
            (found,) = pins(self._uv(asked, given=f"{requirement}\n")).values()
        except UpdateError as error:
            if "No solution found" in str(error):
                return None
            raise
        return found.partition("+")[0]

    def cpu_hashes(self, version: str) -> list[str]:
        """Return the sha256 of torch's CPU build for each of PYTHONS."""
        index = self.url or self.environ.get("OPMATRIX_TORCH_INDEX", TORCH_INDEX)
        found = []
        for python in PYTHONS:
            arguments = ["install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-",
                         "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64", "--python-version", python,
                         *(["--index-url", index] if index else []), f"torch=={version}+cpu"]  # fmt: skip
            (one,) = json.loads(self._pip(arguments))["install"]
            found.append(one["download_info"]["archive_info"]["hashes"]["sha256"])
        return found

    def lock(self, path: Path) -> None:
        """Make a lock anew by the command in its first lines, which it keeps."""
        text = path.read_text(encoding="utf-8")
        head = "".join(re.findall(r"\A(?:#.*\n)+", text))
        if not (found := re.search(r"^# +uv (pip compile .*)", head, re.MULTILINE)):
            raise UpdateError(f"{PINS / path.name} does not say by which command uv makes it")
        asked = shlex.split(found[1])
        if "--extra-index-url" in asked:  # of main.txt: PyTorch's own index, which has the CPU build
            at = asked.index("--extra-index-url")
            index = "" if self.url else self.environ.get("OPMATRIX_TORCH_INDEX", asked[at + 1])
            asked[at : at + 2] = ["--extra-index-url", index] if index else []
        self._uv([*asked, "--no-header", "--quiet"], cwd=path.parents[1])
        path.write_text(head + path.read_text(encoding="utf-8"), encoding="utf-8")

    def _uv(self, asked: Sequence[str], *, cwd: Path | None = None, given: str = "") -> str:
        # To pip all sources are equal; uv takes the first that has the package, where nothing else is asked for.
        strategy = [] if "--index-strategy" in asked else ["--index-strategy", "unsafe-best-match"]
        return self._run(["uv", *asked, "--no-config", *strategy, *self._uv_sources()], cwd=cwd, given=given)

    def _uv_sources(self) -> list[str]:
        """Return uv's options for what pip is configured with, which uv itself does not read."""
        if self.url:
            return ["--default-index", self.url]
        options = []
        for name, values in self._configured.items():
            if name in ("index-url", "extra-index-url", "find-links"):
                options += [text for value in values.split() for text in (f"--{name}", value)]
            elif name == "no-index":
                options.append("--no-index")
        return options

    @functools.cached_property
    def _configured(self) -> dict[str, str]:
        """Return pip's settings: those of the environment before those of files."""
        listed = self._pip(["config", "list"])
        found = re.findall(r"^([\w:]+)\.([\w-]+)='(.*)'$", listed, re.MULTILINE)
        order = ("global", "install", ":env:")
        known = sorted((f for f in found if f[0] in order), key=lambda f: order.index(f[0]))
        return {name: value for _, name, value in known}

    def _pip(self, arguments: Sequence[str]) -> str:
        return self._run([sys.executable, "-m", "pip", *arguments])

    def _run(self, command: Sequence[str], *, cwd: Path | None = None, given: str = "") -> str:
        environment = self.environment
        if command[0] == "uv" and not self.url and (certificate := self._configured.get("cert")):
            environment["SSL_CERT_FILE"] = certificate
        try:
            done = subprocess.run(command, cwd=cwd, env=environment, input=given, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise UpdateError(f"{command[0]} is not on PATH; start this program by ./run python") from error
        if done.returncode:
            raise UpdateError(f"`{shlex.join(command)}` failed:\n{done.stderr.strip()}")
        return done.stdout


# The probe.


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What `doit probe` has measured: the command, what it printed last, and whether the table is right."""

    command: str
    passed: bool
    printed: str
    corrected: Sequence[Row] = ()


def probe(root: Path, rows: Sequence[Row]) -> Probe:
    """Measure these rows, write the measured limits where they differ, and measure once more then."""
    found = _probe(root, rows)
    if found.passed:
        return found
    corrected = []
    for row, measured in [(row, _measured(root, row, found)) for row in rows]:
        text = (root / MATRIX).read_text()
        # Opsets with a gap are no range, which a row cannot hold: the probe fails again, and a person reads why.
        if (written := put_row(text, row, measured)) != text:
            (root / MATRIX).write_text(written)
            corrected.append(row)
    again = _probe(root, rows) if corrected else found
    return Probe(command=again.command, passed=again.passed, printed=again.printed, corrected=corrected)


def _probe(root: Path, rows: Sequence[Row]) -> Probe:
    asked = {factor: ",".join(row.minor for row in rows if row.factor == factor) for factor in _FACTORS}
    command = ["./run", "doit", "probe", *(f"{factor}={minors}" for factor, minors in asked.items() if minors)]
    say(shlex.join(command))
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return Probe(command=shlex.join(command), passed=not done.returncode, printed=done.stdout)


def _measured(root: Path, row: Row, found: Probe) -> str:
    """Return the row that was measured. Raises UpdateError where nothing was."""
    path = Paths(root).probe_result(str(row))
    if not path.is_file():
        raise UpdateError(f"`{found.command}` has not measured {row}:\n{found.printed.strip()[-3000:]}")
    measured = json.loads(path.read_text())
    if row.factor == "torch":
        return source(row.minor, torch_row(Export(**one) for one in measured))
    return source(row.minor, Ort(**measured))


# The whole.


def update(root: Path, index: Index, *, probing: bool, write_back: bool) -> str:
    """Return the text of a pull request, or "" where every pin is the newest. UpdateError: nothing was changed."""
    pinned = Pinned.read(root / PINS)
    say("asking for the newest versions")
    changes = list(plan(pinned, index.newest))
    if not changes:
        return ""
    with tempfile.TemporaryDirectory(prefix="opmatrix-pins-") as folder:
        copy = Path(folder) / root.name
        files = copied(root, copy)
        for change in changes:
            say(f"{change.package} {change.old} -> {change.new}")
            write(change, copy, pinned)
        _write_cpu_hashes(copy, changes, index)
        for path in sorted((copy / PINS).glob("*.in")):
            if path.read_text() != files.get(PINS / path.name):
                say(f"uv makes {PINS / path.with_suffix('.txt').name}")
                index.lock(path.with_suffix(".txt"))
        found = probe(copy, list(_touched(changes, Pinned.read(copy / PINS)))) if probing else None
        after = {path.relative_to(copy): path.read_text() for path in [*sorted((copy / PINS).iterdir()), copy / MATRIX]}
        changed = {path: text for path, text in after.items() if files.get(path) != text}
        if write_back:
            replace(root, changed)
        return pull_request(changes, pinned, before=files, after=changed, probe=found)


def copied(root: Path, copy: Path) -> dict[Path, str]:
    """Copy what git knows or would add; return the texts that may change, by path."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    for path in (root / name for name in names if name):
        if path.is_symlink() or path.is_file():
            target = copy / path.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target, follow_symlinks=False)
    return {p.relative_to(copy): p.read_text() for p in [*(copy / PINS).iterdir(), copy / MATRIX]}


def _write_cpu_hashes(root: Path, changes: Iterable[Change], index: Index) -> None:
    """Give torch-cpu.txt the checksums of its new version, where it has one."""
    path = root / PINS / "torch-cpu.txt"
    version = pins(path.read_text())["torch"].partition("+")[0]
    if any(change.package == "torch" and not change.like and change.new == version for change in changes):
        head, _, _ = path.read_text().partition(" \\\n")
        hashes = [f"    --hash=sha256:{one}" for one in index.cpu_hashes(version)]
        path.write_text(" \\\n".join([head, *hashes]) + "\n")


def _touched(changes: Sequence[Change], pinned: Pinned) -> Iterator[Row]:
    """Yield the rows to be measured: those that changed, or all where a package of all of them did."""
    for row in sorted(pinned.rows, key=lambda row: (row.factor, Version(row.minor))):
        # The exporters need onnx and onnxscript; ONNX Runtime reads by itself.
        common = any(not change.row for change in changes) and row.factor == "torch"
        if common or any(change.row == row for change in changes):
            yield row


def replace(root: Path, changed: Mapping[Path, str]) -> None:
    """Write all files or, where one cannot be written, none."""
    before = {path: (root / path).read_bytes() if (root / path).exists() else None for path in changed}
    try:
        for path, text in changed.items():
            write_bytes(root / path, text.encode())
    except BaseException:
        for path, content in before.items():
            with contextlib.suppress(OSError):
                if content is None:
                    (root / path).unlink(missing_ok=True)
                else:
                    write_bytes(root / path, content)
        raise


# The text.


def pull_request(
    changes: Sequence[Change],
    pinned: Pinned,
    *,
    before: Mapping[Path, str],
    after: Mapping[Path, str],
    probe: Probe | None,
) -> str:
    """Return title and body, as Markdown."""
    raised = dict.fromkeys(f"{change.package} to {change.new}" for change in changes)
    rows = [f"| {c.package} | {c.old} | {c.new} | {_where(c)} |" for c in changes]
    table = "\n".join(["| package | before | after | where |", "|---|---|---|---|", *rows])
    parts = [f"Raise {', '.join(raised)}", "## Pins", table]
    if follow := list(_followed(changes, before, after)):
        parts += ["Raised with them, in the locks:", "\n".join(f"- {line}" for line in follow)]
    parts += ["## Matrix", "\n".join(_matrix_lines(before[MATRIX], after.get(MATRIX, before[MATRIX])))]
    parts += ["## Probe", *_probe_lines(probe)]
    parts += ["## To decide", "\n".join(f"- {line}" for line in _decisions(changes, pinned, probe))]
    return "\n\n".join(parts) + "\n"


def _where(change: Change) -> str:
    if change.like:
        return f"new row {change.row}, made from {change.like}"
    return f"row {change.row}" if change.row else "all environments"


def _followed(changes: Sequence[Change], before: Mapping[Path, str], after: Mapping[Path, str]) -> Iterator[str]:
    """Yield what else has another version in a lock that was there before."""
    asked = {change.package for change in changes}
    moved: dict[str, list[str]] = {}
    for path, text in after.items():
        old, new = pins(before.get(path, text)), pins(text)
        for name in sorted({*old, *new} - asked) if path.suffix == ".txt" else ():
            if old.get(name) != new.get(name):
                line = f"{name} {old.get(name, '(none)')} -> {new.get(name, '(none)')}"
                moved.setdefault(line, []).append(path.stem)
    yield from (f"{line}: {', '.join(files)}" for line, files in moved.items())


def _matrix_lines(before: str, after: str) -> Iterator[str]:
    """Yield the rows that changed."""
    if before == after:
        yield f"No row of `{MATRIX}` changes."
        return
    old, new = before.splitlines(), after.splitlines()
    yield "```diff"
    yield from (f"-{line}" for line in old if line not in new)
    yield from (f"+{line}" for line in new if line not in old)
    yield "```"


def _probe_lines(probe: Probe | None) -> Iterator[str]:
    if not probe:
        yield "Not run (`--skip-probe`): a new row has its neighbour's limits, which nobody has measured."
        return
    yield f"`{probe.command}`: {'the table is right' if probe.passed else '**it fails**'}."
    if probe.corrected:
        yield f"Written as measured: {', '.join(map(str, probe.corrected))}. The limits before were different."
    if not probe.passed:
        yield f"```text\n{probe.printed.strip()[-3000:]}\n```"


def _decisions(changes: Sequence[Change], pinned: Pinned, probe: Probe | None) -> Iterator[str]:
    """Yield what no program can decide."""
    for change in changes:
        if change.row and change.like:
            title = _TITLES[change.row.factor]
            count = 1 + sum(row.factor == change.row.factor for row in pinned.rows)
            main = Row.of(change.row.factor, pinned.main[change.package])
            yield f"The matrix now has {count} rows for {title}. Is one of the older ones to be removed?"
            yield f"Does `.venv` go from {main} to {change.row} (`main.in`, `torch-cpu.txt`, `tox.ini`)?"
            yield f"`docs/matrix.md`: add {title} {change.row.minor} to its table."
            if change.row.factor == "torch":
                yield f"`{PINS}/{change.row}.in`: does torch {change.row.minor} ask for the same packages?"
    if probe and not probe.passed:
        yield "The probe fails: change its row or its pins by hand, then run it again."
    if not probe:
        yield "Run the probe: `./run doit probe torch=all ort=all`."
    yield "Verify every cell: `./run tox run -m full`."


def say(text: str) -> None:
    print(f"update: {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Print the pull request on stdout, and what happens meanwhile on stderr."""
    parser = argparse.ArgumentParser(prog="update.py", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--index", metavar="URL", help="take versions and packages from this index alone")
    parser.add_argument("--dry-run", action="store_true", help="do the same in a copy, and change no file here")
    parser.add_argument("--skip-probe", action="store_true", help="measure nothing")
    asked = parser.parse_args(arguments)
    try:
        text = update(root, Index(url=asked.index), probing=not asked.skip_probe, write_back=not asked.dry_run)
    except (UpdateError, OSError, subprocess.CalledProcessError) as error:
        say(f"nothing was changed: {error}")
        return 1
    print(text or "Every pin is the newest: nothing to do.", end="" if text else "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
