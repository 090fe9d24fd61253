"""requirements/update.py, on a copy of this checkout's requirements and a local index with wheels made by the test."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@pytest.fixture(scope="module")
def update() -> ModuleType:
    """The program as a module; requirements/ is no package."""
    path = Path(__file__).parents[2] / "requirements/update.py"
    spec = importlib.util.spec_from_file_location("update_pins", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look the module up there
    spec.loader.exec_module(module)
    return module


class Index:
    """A package index in a folder: PEP 503 pages with the hashes of tiny wheels."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.url = folder, ""
        self.added: dict[str, set[str]] = {}

    def add(self, name: str, version: str) -> str:
        """Make a wheel, and return its sha256."""
        known = self.added.setdefault(re.sub(r"[-_.]+", "-", name).lower(), set())
        page = self.folder / re.sub(r"[-_.]+", "-", name).lower()
        page.mkdir(parents=True, exist_ok=True)
        stem = f"{name.replace('-', '_').replace('.', '_')}-{version}"
        path = page / f"{stem}-py3-none-any.whl"
        if version not in known:
            known.add(version)
            info = f"{stem}.dist-info"
            with zipfile.ZipFile(path, "w") as wheel:
                wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
                wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
                wheel.writestr(f"{info}/RECORD", "")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        with (page / "index.html").open("a") as file:
            file.write(f'<a href="{path.name.replace("+", "%2B")}#sha256={digest}">{path.name}</a>\n')
        return digest


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def index(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Every version that this checkout pins, so that there is nothing to raise."""
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    made = Index(tmp_path / "index")
    for path in (root / "requirements").glob("*.txt"):
        for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", path.read_text(), re.MULTILINE):
            if version not in made.added.get(re.sub(r"[-_.]+", "-", name).lower(), ()):
                made.add(name, version)
    made.add("cmeel", "0.59.0")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(made.folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    made.url = f"http://127.0.0.1:{server.server_port}/"
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


# In place of ./run: `doit probe` prints the content of the file `limits`, and compares it with the current matrix.py.
RUN = """#!/usr/bin/env python3
import json, pathlib, sys
pathlib.Path("build/probe").mkdir(parents=True, exist_ok=True)
limits = json.loads(pathlib.Path("limits.json").read_text())
wrong = 0
for argument in sys.argv[3:]:
    factor, _, minors = argument.partition("=")
    for minor in minors.split(","):
        name = factor + minor
        if limits.get(name) == "no wheel":
            sys.exit(f"environment {name}: pip failed")
        rows = pathlib.Path("MATRIX").read_text()
        row = next(line for line in rows.splitlines() if line.startswith(f'    "{minor}": '))
        if name in limits:
            measured, declared = limits[name]
            pathlib.Path(f"build/probe/{name}.json").write_text(json.dumps(measured))
            if declared not in row:
                print(f"{name}: declared otherwise")
                wrong = 1
        print("probed", name)
sys.exit(wrong)
"""


@pytest.fixture
def checkout(tmp_path: Path, root: Path, update: ModuleType) -> Path:
    """The files of this checkout that the program reads, in a git repository of their own."""
    copy = tmp_path / "checkout"
    shutil.copytree(root / "requirements", copy / "requirements", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / update.MATRIX).parent.mkdir(parents=True)
    shutil.copy(root / update.MATRIX, copy / update.MATRIX)
    (copy / "run").write_text(RUN.replace("MATRIX", str(update.MATRIX)))
    (copy / "run").chmod(0o755)
    (copy / "limits.json").write_text("{}")
    (copy / ".gitignore").write_text("build/\n")
    subprocess.run(["git", "init", "-q", copy], check=True)
    return copy


def content(checkout: Path) -> dict[str, str]:
    """Return every file outside .git."""
    files = (p for p in checkout.rglob("*") if p.is_file() and ".git" not in p.parts)
    return {p.relative_to(checkout).as_posix(): p.read_text() for p in files}


@dataclass(frozen=True)
class Done:
    """A run of the program: its exit code, what it printed, and the files that it changed."""

    code: int
    out: str
    err: str
    changed: set[str]


Run = Callable[..., Done]


@pytest.fixture
def run(update: ModuleType, index: Index, checkout: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*options: str) -> Done:
        before = content(checkout)
        code = update.main(["--index", index.url, *options], root=checkout)
        out, err = capsys.readouterr()
        after = content(checkout)
        changed = {name for name in before.keys() | after if before.get(name) != after.get(name)}
        return Done(code=code, out=out, err=err, changed=changed)

    return run


def test_nothing_to_raise(run: Run) -> None:
    done = run()
    assert (done.code, done.out, done.changed) == (0, "Every pin is the newest: nothing to do.\n", set())


def test_a_dry_run_only_prints(index: Index, run: Run) -> None:
    index.add("onnxscript", "0.99.0")
    done = run("--dry-run", "--skip-probe")
    assert done.out.startswith("Raise onnxscript to 0.99.0\n") and "Not run (`--skip-probe`)" in done.out
    assert (done.code, done.changed) == (0, set())


def test_onnx_is_raised_in_every_environment(update: ModuleType, index: Index, checkout: Path, run: Run) -> None:
    digest = index.add("onnx", "1.99.0")
    index.add("onnx", "2.0.0rc1")
    old = re.search(r"^onnx==(\S+)", (checkout / "requirements/main.in").read_text(), re.MULTILINE)
    assert old
    before, done = content(checkout), run()
    names = {path.stem for path in (checkout / "requirements").glob("*.in")} - {"cache", "docs", "package", "wheel"}
    files = {f"requirements/{name}{end}" for name in names for end in (".in", ".txt")}
    assert (done.code, done.changed) == (0, files | {str(update.MATRIX)})
    assert '\nNEWEST = {"onnx": "1.99", "onnxscript": ' in (checkout / update.MATRIX).read_text()
    for name in names:
        assert "\nonnx==1.99.0\n" in (checkout / f"requirements/{name}.in").read_text()
        lock = (checkout / f"requirements/{name}.txt").read_text()
        assert f"onnx==1.99.0 \\\n    --hash=sha256:{digest}\n" in lock
        head = before[f"requirements/{name}.txt"].partition("==")[0].rpartition("\n")[0]
        assert lock.startswith(head), "the first lines say how it is made"
    assert done.out.startswith("Raise onnx to 1.99.0\n")
    assert f"| onnx | {old[1]} | 1.99.0 | all environments |" in done.out
    assert '+NEWEST = {"onnx": "1.99", ' in done.out
    assert "`./run doit probe torch=1.13,2.0,2.6,2.9,2.13,2.15`: the table is right." in done.out


def test_a_patch_release_raises_the_pin_of_its_row(index: Index, checkout: Path, run: Run) -> None:
    index.add("onnxruntime", "1.24.9")
    index.add("torch", "2.9.7")
    done = run()
    files = {"ort1.24.in", "ort1.24.txt", "torch2.9-cpu.txt"}
    assert (done.code, done.changed) == (0, {f"requirements/{name}" for name in files})
    assert "\ntorch==2.9.7\n" in (checkout / "requirements/torch2.9-cpu.txt").read_text()
    assert "| 1.24.9 | row ort1.24 |" in done.out and "| 2.9.7 | row torch2.9 |" in done.out
    assert "`./run doit probe torch=2.9 ort=1.24`: the table is right." in done.out


def test_a_patch_release_of_the_main_torch_has_its_hashes(index: Index, checkout: Path, run: Run) -> None:
    digest = index.add("torch", "2.13.9+cpu")
    files = {"main.in", "main.txt", "torch-cpu.txt", "torch2.13-cpu.txt"}
    done = run("--skip-probe")
    assert (done.code, done.changed) == (0, {f"requirements/{name}" for name in files})
    lock = (checkout / "requirements/torch-cpu.txt").read_text()
    hashes = " \\\n".join([f"    --hash=sha256:{digest}"] * 3)  # one wheel for every Python
    assert lock.endswith(f"\ntorch==2.13.9+cpu \\\n{hashes}\n") and lock.startswith("# PyTorch's CPU build")
    assert "\ntorch==2.13.9+cpu\n" in (checkout / "requirements/main.in").read_text()


LIMITS = [
    {"exporter": exporter, "opset": opset, "ir": 10, "label": exporter == "legacy" and opset > 21, "wrong": ""}
    for exporter, opsets in (("legacy", range(7, 24)), ("dynamo", range(18, 27)))
    for opset in opsets
]


def test_a_new_minor_gets_a_row_with_measured_limits(
    update: ModuleType, index: Index, checkout: Path, run: Run
) -> None:
    index.add("torch", "2.16.0")
    index.add("torch", "2.17.1")
    index.add("onnxruntime", "1.33.0")
    limits = {
        "torch2.17": (LIMITS, "legacy=range(7, 22), dynamo=range(18, 27), label=range(22, 24)"),
        "ort1.33": ({"ir": 14, "opset": 27}, "ir=14, opset=27"),
    }
    (checkout / "limits.json").write_text(json.dumps(limits))
    done = run()
    out = done.out
    files = {"torch2.17.in", "torch2.17.txt", "torch2.17-cpu.txt", "ort1.33.in", "ort1.33.txt"}
    assert (done.code, done.changed) == (0, {f"requirements/{name}" for name in files} | {str(update.MATRIX)})

    pins = {name: (checkout / "requirements" / name).read_text() for name in files}
    assert "\ntorch==2.17.1\n" in pins["torch2.17-cpu.txt"]
    assert "What torch 2.17's cells" in pins["torch2.17.in"]
    assert "setuptools==84.2.1  # torch 2.15 asks for 77 or newer" in pins["torch2.17.in"], "the reason is of 2.15"
    assert "onnxruntime==1.33.0\n" in pins["ort1.33.in"] and "\nonnxruntime==1.33.0 \\\n" in pins["ort1.33.txt"]
    for name, text in pins.items():
        assert name.endswith("-cpu.txt") or "main.txt" not in text, "only the main versions share main's lock"
        if name.endswith("3.txt") or name == "torch2.17.txt":
            assert f"requirements/{name.removesuffix('.txt')}.in -o requirements/{name}\n" in text

    rows = (checkout / update.MATRIX).read_text()
    assert '    "2.17": Torch(legacy=range(7, 22), dynamo=range(18, 27), label=range(22, 24)),\n}' in rows
    assert '    "1.33": Ort(ir=14, opset=27),\n}' in rows
    assert '"2.16"' not in rows
    compile(rows, update.MATRIX, "exec")
    assert "| 2.17.1 | new row torch2.17, made from torch2.15 |" in out
    assert "`./run doit probe torch=2.17 ort=1.33`: the table is right." in out
    assert "Written as measured: ort1.33, torch2.17" in out
    assert '+    "1.33": Ort(ir=14, opset=27),' in out
    assert "- The matrix now has 7 rows for torch." in out
    assert "- Does `.venv` go from torch2.13 to torch2.17" in out
    # It can read what it wrote: a second run has nothing to do.
    done = run()
    assert done.code == 0 and "Every pin is the newest" in done.out


def test_limits_with_a_gap_are_an_error(update: ModuleType, index: Index, checkout: Path, run: Run) -> None:
    index.add("torch", "2.17.0")
    gap = [one for one in LIMITS if one["opset"] != 19]
    (checkout / "limits.json").write_text(json.dumps({"torch2.17": (gap, "no such row")}))
    done = run()
    assert done.code == 0
    assert "`./run doit probe torch=2.17`: **it fails**." in done.out and "torch2.17: declared otherwise" in done.out
    assert "- The probe fails: change its row or its pins by hand" in done.out
    rows = (checkout / update.MATRIX).read_text().splitlines()
    (new,) = (line for line in rows if '"2.17": Torch' in line)  # the longest parts without a gap
    assert new == '    "2.17": Torch(legacy=range(7, 19), dynamo=range(20, 27), label=range(22, 24)),'


def test_a_failed_probe_changes_nothing(index: Index, checkout: Path, run: Run) -> None:
    index.add("torch", "2.17.0")
    (checkout / "limits.json").write_text('{"torch2.17": "no wheel"}')
    done = run()
    assert (done.code, done.out, done.changed) == (1, "", set())
    assert "nothing was changed: `./run doit probe torch=2.17` has not measured torch2.17:" in done.err
    assert "environment torch2.17: pip failed" in done.err


def test_a_failed_lock_changes_nothing(index: Index, run: Run) -> None:
    index.add("onnx", "1.99.0")
    shutil.rmtree(index.folder / "hypothesis")
    done = run("--skip-probe")
    assert (done.code, done.changed) == (1, set()) and "nothing was changed: `uv pip compile " in done.err


def test_all_files_are_written_or_none(update: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        (tmp_path / name).write_text("old")
    put, calls = update.write_bytes, []

    def full(path: Path, text: bytes) -> None:
        calls.append(path.name)
        if len(calls) == 3:
            raise OSError("disk full")
        put(path, text)

    monkeypatch.setattr(update, "write_bytes", full)
    with pytest.raises(OSError, match="disk full"):
        update.replace(tmp_path, {Path(name): "new" for name in ("a", "fresh", "b", "c")})
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a": "old", "b": "old", "c": "old"}


def test_limits_that_the_probe_did_not_measure_stay(update: ModuleType) -> None:
    rows = 'ORT: M = {\n}\nTORCH: M = {\n    "1.13": Torch(legacy=range(7, 18), no_dynamo=_NO, python="3.11"),\n}\n'
    row = update.Row(factor="torch", minor="1.13")
    same = '"1.13": Torch(legacy=range(7, 18), no_dynamo=...)'
    assert update.put_row(rows, row, same) == rows
    wider = update.put_row(rows, row, same.replace("18", "19"))
    assert wider == rows.replace("18", "19")


def test_settings_of_pip_are_passed_to_uv(update: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    index = update.Index(environ={})
    settings = ":env:.index-url='http://a/'\nglobal.cert='/x'\nglobal.index-url='http://b/'\nglobal.find-links='c d'\n"
    monkeypatch.setattr(update.Index, "_pip", lambda *_: settings)
    assert index._uv_sources() == ["--index-url", "http://a/", "--find-links", "c", "--find-links", "d"]
    assert update.Index(url="http://c/")._uv_sources() == ["--default-index", "http://c/"]
