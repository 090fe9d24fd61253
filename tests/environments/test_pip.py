"""A stage runs in the environment that has its version, or names the missing environment. A Debian package that has
pip, with stubs for apt-get and dpkg. What `Pip.install` shows while a real pip downloads and installs: how many MB
of how many, and which package.
"""

from __future__ import annotations

import http.server
import os
import re
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

import opmatrix
from opmatrix.basics import step_log
from opmatrix.basics.errors import UsageError
from opmatrix.basics.step_log import LOGGED, now_doing
from opmatrix.environments import pip_install, reexec
from opmatrix.environments.pip_install import Pip, PipWork, VenvPaths
from opmatrix.project.paths import Paths
from tests.incremental.conftest import wait_for

ARGUMENTS = ["verify", "my_op", "--cell", "node-opset18-ort1.18"]
Started = list[tuple[str, list[str], dict[str, str]]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """The program that would replace this process; the test does not replace it."""
    calls: Started = []

    def execve(python: str, arguments: list[str], variables: dict[str, str]) -> None:
        calls.append((python, arguments, variables))

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(__version__="1.31.1"))  # type: ignore[arg-type]
    return calls


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(tmp_path)
    made.python("ort1.18").parent.mkdir(parents=True)
    made.python("ort1.18").touch()
    return made


def test_it_starts_the_right_environment_and_stays_in_the_main_one(
    paths: Paths, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.31")
    assert started == []
    monkeypatch.setenv("PYTHONPATH", "/more")
    reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.18")
    link = paths.package_link("ort1.18")
    link.unlink()
    link.symlink_to("/where/the/checkout/was")
    reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.18")
    (python, arguments, variables), again = started
    assert again == (python, arguments, variables)
    assert (python, arguments[1:]) == (str(paths.python("ort1.18")), ["-m", "opmatrix", *ARGUMENTS])
    folder, more = variables["PYTHONPATH"].split(os.pathsep)
    assert more == "/more" and [p.name for p in Path(folder).iterdir()] == ["opmatrix"]
    assert Path(folder, "opmatrix") == link
    assert link.resolve() == Path(str(opmatrix.__file__)).resolve().parent


def test_a_missing_environment_is_an_error(paths: Paths, started: Started) -> None:
    with pytest.raises(UsageError) as info:
        reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.21")
    assert str(info.value).splitlines() == [
        "this environment has onnxruntime 1.31, not 1.21; environment ort1.21 has not been created yet. "
        "Run: python -m opmatrix environment ort1.21",
        "It takes the network, 0.2 GB of disk and some seconds. Then repeat this command.",
    ]
    assert started == []


def test_an_environment_with_another_version_than_its_name(
    paths: Paths, started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not start itself endlessly."""
    monkeypatch.setattr(sys, "prefix", str(paths.environment("ort1.18")))
    with pytest.raises(UsageError, match=r"^environment ort1\.18 has onnxruntime 1\.31\. Remove "):
        reexec.in_environment(paths, ARGUMENTS, factor="ort", version="1.18")
    assert started == []


APT = """echo "$@" >> "$STUBS/calls"
case "$*" in
*update*) ;;
*download*there) touch there_1_amd64.deb ;;
*download*) echo 'E: Unable to locate package'; exit 100 ;;
esac
"""


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, script in (("apt-get", APT), ("dpkg", 'mkdir -p "$3"; touch "$3/unpacked"\n')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("STUBS", str(tmp_path))
    return tmp_path


def test_a_debian_package_is_unpacked(stubs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pip_install.unpack_debian("there", into=stubs / "into")
    assert (stubs / "into" / "unpacked").exists()
    assert all("Dir::State=/" in call for call in (stubs / "calls").read_text().splitlines())
    with pytest.raises(pip_install.DebianError, match="apt-get download nonesuch: E: Unable to locate package"):
        pip_install.unpack_debian("nonesuch", into=stubs / "into")
    monkeypatch.setenv("PATH", "/nonesuch")
    with pytest.raises(pip_install.DebianError, match="apt-get is not on PATH"):
        pip_install.unpack_debian("there", into=Path("/nonesuch"))


WHEEL = "slow_package-1.0-py3-none-any.whl"


@contextmanager
def slow_index(folder: Path, shown: list[str]) -> Iterator[str]:
    """Serve a package index with one wheel of 4 MB, half of it when `shown` has two times that are left; yield its
    address."""
    wheel = folder / WHEEL
    files = {
        "slow_package/data.bin": os.urandom(4_000_000),
        "slow_package-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: slow-package\nVersion: 1.0\n",
        "slow_package-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "slow_package-1.0.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    content = wheel.read_bytes()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
            body = content if self.path.endswith(".whl") else page
            self.send_response(200)
            self.send_header("Content-Type", "application/zip" if body is content else "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            if body is content:
                wait_for(lambda: sum("left" in line for line in shown) >= 2)
            self.wfile.write(body[half:])

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()


def test_a_download_shows_its_megabytes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a step of doit, as marks in its log."""
    monkeypatch.setenv(LOGGED, "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    (tmp_path / "pins.txt").write_text("slow-package==1.0\n")
    paths = VenvPaths(root=tmp_path)
    command = (sys.executable, "-m", "pip")
    shown: list[str] = []

    def show(line: str) -> None:
        shown.append(line)
        now_doing(line)

    monkeypatch.setattr(step_log, "now_doing", show)
    with slow_index(tmp_path, shown) as index, paths.lock.open("w") as lock:
        pip = Pip(paths=paths, command=command, lock=lock.fileno())
        arguments = ("--index-url", index, "--no-deps", "--no-cache-dir", "--target", str(tmp_path / "into"))
        pip.install(*arguments, "-r", str(tmp_path / "pins.txt"))
    marks = [line for line in capfd.readouterr().out.splitlines() if "slow_package 1.0: " in line]
    found = [
        re.fullmatch(r"# now slow_package 1\.0: (\d) of 4 MB(?:, about \d+:\d\d left)?; package 1 of 1", s)
        for s in marks
    ]
    megabytes = [int(match[1]) for match in found if match]
    assert len(megabytes) == len(marks) and len(megabytes) >= 2
    assert megabytes == sorted(megabytes) and 0 < megabytes[-1] <= 4
    assert any("left" in line for line in marks)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("Collecting numpy==2.4.6 (from -r requirements/main.txt (line 1))", "collecting numpy==2.4.6"),
        (
            "  Downloading https://a.example/numpy-2.4.6-x.whl (16.6 MB)",
            "numpy 2.4.6: 0 of 17 MB; package 1 of 2",
        ),
        ("Using cached numpy-2.4.6-cp311-x.whl (16.6 MB)", "numpy 2.4.6: 0 of 17 MB; package 1 of 2"),
        ("Downloading idna-3.10-py3-none-any.whl (70 kB)", "idna 3.10; package 1 of 2"),
        ("  Downloading numpy-2.4.6-cp311-x.whl.metadata (62 kB)", ""),
        ("Processing ./wheels/numpy-2.4.6-cp311-x.whl", "numpy 2.4.6; package 1 of 2"),
        ("Installing collected packages: numpy, idna", "1 of 2 packages installed"),
        (
            "WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'NewConnectionError(...)'",
            "no answer from the package index; trying again",
        ),
    ],
)
def test_lines_of_pip(tmp_path: Path, line: str, shown: str) -> None:
    work = PipWork(downloads=tmp_path / "none", environment=tmp_path, packages=2)
    (tmp_path / "lib/python3.11/site-packages/numpy-2.4.6.dist-info").mkdir(parents=True)
    work.read(line)
    assert work.shown() == shown
