"""opmatrix's wheel with the newest packages that the index has today, as a new user gets it.

`tox run -e newest`. What fails only with them fails in nightly (OPMATRIX_NEWEST=strict); in CI it is a notice, an
expected failure that names the new packages, because no change of this repository has caused it. What also fails with
our pins is an error in both.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from packaging.version import Version

from tests.newest.installation import Installation, InstallationError, pins
from tests.support.projects import ROOT
from tests.support.wheels import build_wheel

STRICT = os.environ.get("OPMATRIX_NEWEST") == "strict"


def newer(found: Mapping[str, str], pinned: Mapping[str, str]) -> list[str]:
    """Return the packages that are newer than the pinned ones."""
    known = {name.replace("_", "-").lower(): version for name, version in found.items()}
    return [
        f"{name} {known[name]} is new (pinned: {version})"
        for name, version in pinned.items()
        if name in known and Version(known[name]).release > Version(version).release
    ]


def judge(newest: str, new: list[str], pinned: Callable[[], str], *, strict: bool) -> None:
    """Fail, or expect the failure, of a run with the newest packages; `pinned` runs with the pinned ones.

    `newest` and what `pinned` returns are the message of what failed, or "". `new` is empty if the installation failed.
    """
    if not newest:
        return
    if not strict and not (also := pinned()):
        named = ", ".join(new) or "no installed package is new"
        pytest.xfail(f"{named}; fails only with the newest packages:\n{newest}")
    pytest.fail(newest if strict else also, pytrace=False)


def attempt(install: Callable[[], Installation], folder: Path, new: list[str]) -> str:
    """Install and follow the quick start; return why that failed, or "". `new` gets the packages that are new."""
    try:
        made = install()
        new += newer(made.packages, pins())
        made.follow(folder)
    except InstallationError as error:
        return str(error)
    except Exception:  # such as a KeyError: a new package may have another name, or other files
        return traceback.format_exc()
    return ""


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
@pytest.mark.newest
@pytest.mark.timeout(3600)  # as for a page; each command has its own limit
def test_the_quick_start_with_the_newest_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable, name in (("HOME", "home"), ("XDG_CACHE_HOME", "cache")):  # a new user has neither
        (tmp_path / name).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / name))
    wheel = build_wheel(ROOT, tmp_path)
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version.partition('+')[0]}\n" for name, version in pins().items()))
    new: list[str] = []
    said = attempt(partial(Installation.make, tmp_path / "newest", wheel), tmp_path / "with-newest", new)
    print(*new, sep="\n")

    def pinned() -> str:
        install = partial(Installation.make, tmp_path / "pinned", wheel, constraints=constraints)
        return attempt(install, tmp_path / "with-pinned", [])

    judge(said, new, pinned, strict=STRICT)


# The judgement, by planted results.


@pytest.mark.parametrize("strict", [False, True])
def test_what_works_passes(strict: bool) -> None:
    judge("", ["onnx 2.0 is new"], lambda: "not run", strict=strict)


@pytest.mark.parametrize(
    ("new", "named"),
    [(["onnx 2.0 is new"], r"onnx 2\.0 is new"), ([], "no installed package is new")],  # the latter: pip failed
)
def test_what_fails_only_with_new_packages_is_a_notice(new: list[str], named: str) -> None:
    with pytest.raises(pytest.xfail.Exception, match=f"^{named}; fails only with the newest packages:\nwrong$"):
        judge("wrong", new, lambda: "", strict=False)


@pytest.mark.parametrize(
    ("new", "also", "strict", "said"),
    [
        (["onnx 2.0 is new"], "wrong too", False, "wrong too"),  # opmatrix itself is broken
        (["onnx 2.0 is new"], "", True, "wrong"),
        ([], "wrong too", False, "wrong too"),
    ],
)
def test_what_fails(new: list[str], also: str, strict: bool, said: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"^{said}$"):
        judge("wrong", new, lambda: also, strict=strict)


@pytest.mark.parametrize("error", [InstallationError("exit code 1"), KeyError("torch"), ValueError("too few")])
def test_every_failure_is_judged(error: Exception, tmp_path: Path) -> None:
    """Also one of the test itself, where a new package has another name than the test reads."""

    class Failing(Installation):
        def follow(self, folder: Path) -> None:
            raise error

    new: list[str] = []
    said = attempt(lambda: Failing(tmp_path, {"onnx": "99.0"}), tmp_path, new)
    assert str(error) in said and new == [f"onnx 99.0 is new (pinned: {pins()['onnx']})"]


def test_the_new_packages() -> None:
    pinned = {"onnxruntime": "1.31.1", "torch": "2.13.0+cpu", "jinja2": "3.1.6", "ruff": "0.1"}
    found = {"onnxruntime": "1.32.0", "torch": "2.13.0+cpustub", "Jinja2": "3.1.6", "mypy": "9"}
    assert newer(found, pinned) == ["onnxruntime 1.32.0 is new (pinned: 1.31.1)"]
    assert pins()["onnxruntime"] and pins()["torch"].endswith("+cpu")
