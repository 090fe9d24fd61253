"""opmatrix.environments.bootstrap: its decisions and its messages, with a stub for pip and no network."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shutil
import sys
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.environments import bootstrap, pip_install
from opmatrix.environments.pip_install import Pip, SetupError, VenvPaths
from tests.support.raising import raising

ROOT = Path(__file__).parents[2]
NO_TORCH = "ERROR: No matching distribution found for torch==2.13.0+cpu"


@pytest.fixture
def paths(tmp_path: Path) -> VenvPaths:
    """A checkout with only the files of the stamp."""
    for path in (pip_install.LOCK, pip_install.TORCH, bootstrap.PROJECT):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"# {path}\n")
    return VenvPaths(root=tmp_path)


@pytest.fixture
def made(paths: VenvPaths) -> VenvPaths:
    """The same checkout, with a complete environment."""
    paths.python.parent.mkdir(parents=True)
    paths.python.symlink_to(sys.executable)
    bootstrap.write_stamp(paths, bootstrap.stamp(paths.root, {}))
    return paths


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The actions that bring_up_to_date requested; none is done."""
    calls: list[str] = []
    monkeypatch.setattr(bootstrap, "make", lambda *_, **__: calls.append("make"))
    monkeypatch.setattr(bootstrap, "install_project", lambda _: calls.append("install"))
    monkeypatch.setattr(bootstrap, "check_compiler", lambda _: None)
    return calls


def stub_pip(paths: VenvPaths, script: str) -> Pip:
    """A pip that is a shell script; its arguments are "$@"."""
    (paths.root / "pip.sh").write_text(script)
    with paths.lock.open("w") as lock:
        return Pip(paths=paths, command=("sh", str(paths.root / "pip.sh")), lock=lock.fileno())


def test_what_makes_the_environment_anew(made: VenvPaths, done: list[str]) -> None:
    """Changed metadata installs the project alone. Nothing is done if another run has done it."""
    bootstrap.bring_up_to_date(made, {}, lock=0)
    assert done == []
    for path, action in ((bootstrap.PROJECT, "install"), (pip_install.LOCK, "make"), (pip_install.TORCH, "make")):
        (made.root / path).write_text("# changed\n")
        bootstrap.bring_up_to_date(made, {}, lock=0)
        assert (done.pop(), done) == (action, [])
    assert (made.stamp / "pyproject.toml").read_text() == "# changed\n"
    bootstrap.bring_up_to_date(made, {"OPMATRIX_PYTHON": "python3.12"}, lock=0)
    made.python.unlink()
    bootstrap.bring_up_to_date(made, {"OPMATRIX_PYTHON": "python3.12"}, lock=0)
    assert done == ["make", "make"]


def test_the_rest_of_an_interrupted_try_is_removed(paths: VenvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    rest = paths.environment / "lib" / "half"
    rest.mkdir(parents=True)
    monkeypatch.setattr(venv, "create", raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        bootstrap.make(paths, {}, lock=0)
    assert not rest.exists()


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"PATH": "/nonesuch"}, "no C++ compiler: neither g++ nor clang++ is on PATH. Install one"),
        ({"PATH": "/bin", "CXX": "/nonesuch/g++ -m64"}, "CXX is '/nonesuch/g++ -m64', which is not a program"),
    ],
)
def test_a_missing_compiler_is_an_error(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SetupError, match=re.escape(message)) as info:
        bootstrap.check_compiler(environ)
    assert info.value.code == 73


@pytest.mark.parametrize("name", ["g++", "clang++"])
def test_a_compiler_is_found(tmp_path: Path, name: str) -> None:
    (tmp_path / name).symlink_to("/bin/true")
    bootstrap.check_compiler({"PATH": str(tmp_path), "CXX": " "})
    bootstrap.check_compiler({"PATH": "", "CXX": str(tmp_path / name)})


@pytest.mark.parametrize(
    ("name", "found", "message"),
    [
        ("machine", "aarch64", "runs on Linux x86-64, and this is Linux aarch64"),
        ("libc_ver", ("glibc", "2.17"), r"needs glibc 2\.28 or newer"),
        ("libc_ver", ("", ""), r"needs glibc 2\.28 or newer"),
    ],
)
def test_another_machine_or_libc_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, found: object, message: str
) -> None:
    monkeypatch.setattr(platform, name, lambda: found)
    with pytest.raises(SetupError, match=message) as info:
        bootstrap.check_machine()
    assert info.value.code == 71


def test_a_full_disk_is_reported_before_the_download(paths: VenvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=300_000_000))
    with pytest.raises(SetupError, match=r"the disk is full: .* has 0\.3 GB free and needs 2 GB") as info:
        bootstrap.check_disk(paths)
    assert info.value.code == 74


@pytest.mark.parametrize(
    ("output", "code", "message"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", 74, "the disk is full"),
        (
            "WARNING: Retrying: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution\n"
            "ERROR: Could not find a version that satisfies the requirement numpy",
            69,
            "no network: pip cannot reach https://pypi.org/simple (Temporary failure in name resolution)",
        ),
        ("ERROR: HTTPSConnectionPool(host='mirror.example', port=443): Read timed out.", 69, "reach mirror.example"),
        (
            "Looking in indexes: https://mirror.example/cpu, file:///more\nWARNING: Name or service not known",
            69,
            "pip cannot reach https://mirror.example/cpu (no answer)",
        ),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES\n    Expected sha256 12\n     Got    34", 65, "Got    34"),
        (NO_TORCH, 70, NO_TORCH),
    ],
)
def test_errors_of_pip_are_explained(paths: VenvPaths, output: str, code: int, message: str) -> None:
    pip = stub_pip(paths, f"cat <<'END'\n{output}\nEND\nexit 1")
    with pytest.raises(SetupError, match=re.escape(message)) as info:
        pip.install("numpy")
    assert info.value.code == code
    assert output in paths.log.read_text()


TIMEOUT = (
    "WARNING: Retrying (Retry(total=1, connect=None)) after connection broken by 'ConnectTimeoutError"
    "(\"HTTPSConnection(host='mirror.example', port=443): Connection timed out. (connect timeout=10)\")': /simple/x/"
)


def test_an_index_that_does_not_answer_is_not_asked_again(paths: VenvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """But after a download a timeout is left to pip."""
    monkeypatch.delenv("PIP_TIMEOUT", raising=False)
    monkeypatch.delenv("PIP_DEFAULT_TIMEOUT", raising=False)
    pip = stub_pip(paths, f"cat <<'END'\n{TIMEOUT}\nEND\nsleep 1000")
    with pytest.raises(SetupError, match=r"no network: pip cannot reach mirror\.example \(timed out\)"):
        pip.install("-r", str(pip_install.LOCK))
    stub_pip(paths, 'echo "$@" > "$0.calls"').install("numpy")
    assert " numpy --timeout 10" in (paths.root / "pip.sh.calls").read_text()
    stub_pip(paths, f"echo 'Downloading a-1-x.whl (2 MB)'; cat <<'END'\n{TIMEOUT}\nEND\nsleep 0.3").install("numpy")


def test_no_network_is_explained(paths: VenvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a real pip and an index that refuses: what was wanted, which setting names the index, and what to do."""
    for name in ("PIP_FIND_LINKS", "PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT", "OPMATRIX_TORCH_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    (paths.root / pip_install.LOCK).write_text("numpy==2.4.6\nidna==3.10\n")
    with paths.lock.open("w") as lock:
        pip = Pip(paths=paths, command=(sys.executable, "-m", "pip"), lock=lock.fileno())
        with pytest.raises(SetupError) as info:
            pip.install("--target", str(paths.root / "into"), "-r", str(pip_install.LOCK))
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert str(info.value).splitlines() == [
        "pip cannot reach http://127.0.0.1:9/simple (Connection refused)",
        "  To download:  the 2 packages of requirements/main.txt",
        "  Index:        http://127.0.0.1:9/simple (PIP_INDEX_URL)",
        "  Check the connection and these settings, and a proxy, then run again. For a",
        "  machine without a network, download the wheels on one that has it and the",
        "  same platform:",
        f"    pip download --no-deps --python-version {python} -d wheels -r requirements/main.txt",
        f"    pip download --no-deps --python-version {python} -d wheels -r requirements/torch-cpu.txt"
        f" --index-url {pip_install.TORCH_INDEX}",
        f"  Copy the folder wheels to {paths.root}, and run again there with",
        "  PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels",
        "  Log: .venv.log",
    ]
    assert info.value.brief == (
        "pip cannot reach http://127.0.0.1:9/simple (Connection refused; PIP_INDEX_URL). "
        "Check the connection and this setting. Without a network: run `pip download --no-deps "
        f"-d wheels -r requirements/main.txt` on a machine with one (with this file, Python {python} and this "
        "platform), copy the folder wheels here, and run again with PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels"
    )


@pytest.mark.parametrize(
    ("environ", "index", "setting"),
    [
        ({}, pip_install.TORCH_INDEX, "the default of OPMATRIX_TORCH_INDEX"),
        ({"OPMATRIX_TORCH_INDEX": "https://mirror.example"}, "https://mirror.example", "OPMATRIX_TORCH_INDEX"),
        ({"OPMATRIX_TORCH_INDEX": "set"}, "https://****@mirror.example", "OPMATRIX_TORCH_INDEX"),
    ],
)
def test_the_setting_of_torchs_index_is_named(
    paths: VenvPaths, environ: dict[str, str], index: str, setting: str
) -> None:
    arguments = ("--index-url", index.replace("****", "user:secret"))
    found = pip_install.explain(["ERROR: Network is unreachable"], paths=paths, arguments=arguments, environ=environ)
    assert f"  Index:        {index} ({setting})\n" in str(found)


def test_a_wheel_that_is_missing_without_an_index(paths: VenvPaths) -> None:
    for environ, advice in (
        (
            {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "wheels"},
            "put this wheel into 'wheels' (PIP_FIND_LINKS), or unset it",
        ),
        ({"PIP_NO_INDEX": "1"}, "put this wheel into a folder that PIP_FIND_LINKS names, or unset it"),
        ({}, ""),
    ):
        found = str(pip_install.explain([NO_TORCH], paths=paths, environ=environ))
        assert found.endswith(advice) and ("PIP_NO_INDEX" in found) is bool(environ)


def test_pip_is_quiet_when_it_succeeds_and_its_log_has_no_password(
    paths: VenvPaths, capfd: pytest.CaptureFixture[str]
) -> None:
    pip = stub_pip(paths, "echo Collecting numpy; echo a warning >&2")
    pip.install("--index-url", "https://user:secret@mirror.example/cpu", "torch")
    assert capfd.readouterr() == ("", "")
    log = paths.log.read_text()
    assert "Collecting numpy\na warning\n" in log and "--index-url https://****@mirror.example/cpu torch" in log


TORCH_PIP = f"""echo "$@" >> "$0.calls"
case "$*" in *--index-url*) exit 0 ;; esac
echo '{NO_TORCH}'; exit 1
"""


@pytest.mark.parametrize(
    ("index", "asked"),
    [(None, ["", pip_install.TORCH_INDEX]), ("https://mirror.example/cpu", ["https://mirror.example/cpu"])],
)
def test_the_index_that_pip_uses_for_torch(paths: VenvPaths, index: str | None, asked: list[str]) -> None:
    bootstrap.install_torch(stub_pip(paths, TORCH_PIP), index)
    calls = (paths.root / "pip.sh.calls").read_text().splitlines()
    assert [(re.findall(r"--index-url (\S+)", call) or [""])[0] for call in calls] == asked
    assert all("--require-hashes --no-deps -r requirements/torch-cpu.txt" in call for call in calls)
    with pytest.raises(SetupError, match=re.escape(NO_TORCH)):
        bootstrap.install_torch(stub_pip(paths, TORCH_PIP), "")  # forbids an index of torch's own


def test_pip_is_taken_from_a_wheel_or_from_debian(paths: VenvPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def unpack(package: str, *, into: Path) -> None:
        wheel = into / "usr/share/python-wheels/pip-23.0.1-py3-none-any.whl"
        wheel.parent.mkdir(parents=True)
        wheel.touch()

    wheel = paths.root / "pip-26.3-py3-none-any.whl"
    wheel.touch()
    monkeypatch.setattr(pip_install, "_wheel_folders", lambda: [paths.root])
    assert pip_install.find_pip(paths, paths.root) == (str(paths.python), str(wheel / "pip"))
    monkeypatch.setattr(pip_install, "_wheel_folders", list)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(pip_install, "unpack_debian", unpack)
    assert pip_install.find_pip(paths, paths.root)[1].endswith("pip-23.0.1-py3-none-any.whl/pip")
    monkeypatch.setattr(pip_install, "unpack_debian", raising(pip_install.DebianError("apt-get is not on PATH")))
    with pytest.raises(SetupError, match=r"apt-get is not on PATH.*check the network, or install pip"):
        pip_install.find_pip(paths, paths.root)


def test_the_lock_fits_the_pins_and_every_download_has_a_hash() -> None:
    pins = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements/main.in").read_text(), flags=re.MULTILINE))
    locks = [(ROOT / path).read_text() for path in (pip_install.LOCK, pip_install.TORCH)]
    found = dict(re.findall(r"^([\w-]+)==(\S+)", "".join(locks), flags=re.MULTILINE))
    assert {name: found.get(name) for name in pins} == pins
    for lock in locks:
        entries = re.split(r"^(?=[\w-]+==)", lock, flags=re.MULTILINE)[1:]
        assert entries
        assert [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry] == []
