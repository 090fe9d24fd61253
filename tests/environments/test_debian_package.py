"""A Debian package that has pip, with stubs for apt-get and dpkg."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.environments import pip_install

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


def test_unpack(stubs: Path) -> None:
    pip_install.unpack_debian("there", into=stubs / "into")
    assert (stubs / "into" / "unpacked").exists()
    assert all("Dir::State=/" in call for call in (stubs / "calls").read_text().splitlines())


def test_a_missing_package(stubs: Path) -> None:
    with pytest.raises(pip_install.DebianError, match="apt-get download nonesuch: E: Unable to locate package"):
        pip_install.unpack_debian("nonesuch", into=stubs / "into")


def test_a_system_other_than_debian(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonesuch")
    with pytest.raises(pip_install.DebianError, match="apt-get is not on PATH"):
        pip_install.unpack_debian("there", into=Path("/nonesuch"))
