"""opmatrix.toolchain.ort_headers: where headers come from and which are refused, without a network."""

from __future__ import annotations

import email.message
import hashlib
import io
import re
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from opmatrix.basics.errors import SdkError
from opmatrix.cache.settings import CacheSettings, Mode
from opmatrix.project.paths import cache_folder
from opmatrix.toolchain import debian_package, ort_headers, shared_headers
from opmatrix.toolchain.shared_headers import HeadersInCache

CONTENT = {name: f"// {name}\n#define ORT_API_VERSION 21\n".encode() for name in ort_headers.CHECKSUMS}


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pin CONTENT, and let no test use a network."""
    pinned = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    for module in (ort_headers, shared_headers):
        monkeypatch.setattr(module, "CHECKSUMS", pinned)
    monkeypatch.setattr(urllib.request, "urlopen", _offline)
    monkeypatch.setattr(debian_package, "unpack", _no_apt)


def _offline(*_: object, **__: object) -> None:
    raise urllib.error.URLError("no route")


def _no_apt(*_: object, **__: object) -> None:
    raise debian_package.DebianError("apt-get is not on PATH")


def _give_by_debian(monkeypatch: pytest.MonkeyPatch, content: dict[str, bytes]) -> None:
    def unpack(package: str, *, into: Path, suite: str) -> None:
        folder = into / "usr/include/onnxruntime"
        folder.mkdir(parents=True)
        for name, data in content.items():
            (folder / name).write_bytes(data)

    monkeypatch.setattr(debian_package, "unpack", unpack)


def find(cache: Path, **environ: str) -> tuple[ort_headers.OrtHeaders, list[str]]:
    said: list[str] = []
    return ort_headers.find_headers({"PATH": "/nonesuch", **environ}, cache=cache, say=said.append), said


def header(folder: Path, version: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ort_headers.C_API).write_text(f"#pragma once\n#define ORT_API_VERSION {version}\n")
    return folder


def test_setting(tmp_path: Path) -> None:
    folder = header(tmp_path / "include", 24)
    headers, _ = find(tmp_path, OPMATRIX_ORT_INCLUDE=str(folder))
    assert (headers.path, headers.version, headers.api_version) == (folder, "1.24", 24)


def test_setting_without_headers(tmp_path: Path) -> None:
    with pytest.raises(SdkError, match=r"which contains no usable onnxruntime_c_api\.h"):
        find(tmp_path, OPMATRIX_ORT_INCLUDE=str(tmp_path))


def test_setting_with_old_headers(tmp_path: Path) -> None:
    with pytest.raises(SdkError, match="API version 15; 18 or newer is needed"):
        find(tmp_path, OPMATRIX_ORT_INCLUDE=str(header(tmp_path, 15)))


def pkg_config(folder: Path, include: Path) -> str:
    script = f"#!/bin/sh\ncase $1 in --modversion) echo 1.23.2 ;; *) echo '-I{include}' ;; esac\n"
    (folder / "pkg-config").write_text(script)
    (folder / "pkg-config").chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


def test_pkg_config(tmp_path: Path) -> None:
    headers, said = find(tmp_path, PATH=pkg_config(tmp_path, header(tmp_path / "include", 23)))
    assert (headers.path, headers.version, headers.api_version) == (tmp_path / "include", "1.23.2", 23)
    assert said == []


def test_pkg_config_that_is_too_old_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _give_by_debian(monkeypatch, CONTENT)
    headers, said = find(tmp_path, PATH=pkg_config(tmp_path, header(tmp_path / "include", 14)))
    assert headers.version == ort_headers.VERSION
    assert said[0].startswith("pkg-config's libonnxruntime 1.23.2 is passed over")


class Answer(io.BytesIO):
    """The answer of a server that does not say how long it is."""

    headers = email.message.Message()


def test_a_release_archive_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, data in {**CONTENT, "libonnxruntime.so": b"not wanted"}.items():
            member = tarfile.TarInfo(f"onnxruntime-linux-x64-{ort_headers.VERSION}/include/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_, **__: Answer(archive.getvalue()))
    first, said = find(tmp_path)
    assert len(said) == 1
    assert sorted(path.name for path in first.path.iterdir()) == sorted(CONTENT)
    monkeypatch.setattr(urllib.request, "urlopen", _offline)
    assert find(tmp_path) == (first, [])
    assert [path.name for path in tmp_path.iterdir()] == [first.path.name]


def test_debian_is_used_if_the_release_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _give_by_debian(monkeypatch, {**CONTENT, "other.h": b""})
    headers, said = find(tmp_path)
    assert (headers.version, headers.api_version) == (ort_headers.VERSION, 21)
    assert said[1] == "no answer there (no route); fetching them from Debian's package libonnxruntime-dev (trixie)"
    assert not (headers.path / "other.h").exists()


def test_missing_headers_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(SdkError, match=r"cannot be had, neither .*\(no route\) nor .*\(apt-get is not on PATH\)"):
        find(tmp_path)


def test_a_download_that_is_not_the_pinned_one_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _give_by_debian(monkeypatch, {**CONTENT, ort_headers.C_API: b"#define ORT_API_VERSION 21 // and more"})
    with pytest.raises(SdkError, match=r"is not the header of ONNX Runtime .* do not use it"):
        find(tmp_path)
    assert list(tmp_path.iterdir()) == []


def found_with(cache: Path, url: str, mode: Mode = "read") -> list[str]:
    """Find the headers with a shared cache, and return the lines about it."""
    said: list[str] = []
    shared = HeadersInCache(CacheSettings(url=url, mode=mode), said.append)
    headers = ort_headers.find_headers({"PATH": "/nonesuch"}, cache=cache, say=said.append, shared=shared)
    assert {path.name: path.read_bytes() for path in headers.path.iterdir()} == CONTENT
    return said


def test_what_one_machine_downloaded_another_takes_from_the_shared_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = (tmp_path / "shared").as_uri()
    _give_by_debian(monkeypatch, CONTENT)
    assert len(found_with(tmp_path / "reads", url)) == 2
    assert not (tmp_path / "shared").exists()  # in the mode "read" nothing is stored
    assert len(found_with(tmp_path / "writes", url, "write")) == 2
    assert {p.read_bytes() for p in (tmp_path / "shared/cas").iterdir()} == {*CONTENT.values()}
    monkeypatch.setattr(debian_package, "unpack", _no_apt)
    assert found_with(tmp_path / "other", url) == [
        f"the headers of ONNX Runtime {ort_headers.VERSION} are from the shared cache, {url}"
    ]


@pytest.mark.parametrize("content", [b"other", None], ids=["damaged", "missing"])
def test_a_header_that_the_shared_cache_lacks_is_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    _give_by_debian(monkeypatch, CONTENT)
    found_with(tmp_path / "writes", (tmp_path / "shared").as_uri(), "write")
    one = tmp_path / "shared/cas" / hashlib.sha256(CONTENT[ort_headers.C_API]).hexdigest()
    if content is None:
        one.unlink()
    else:
        one.write_bytes(content)
    assert len(found_with(tmp_path / "other", (tmp_path / "shared").as_uri())) == 2


def test_a_shared_cache_that_is_gone_costs_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _give_by_debian(monkeypatch, CONTENT)
    (tmp_path / "file").write_text("")
    said = found_with(tmp_path / "cache", (tmp_path / "file").as_uri(), "write")
    assert re.match(r"the shared cache is not used for headers: cannot write '.*/file/cas': Not a directory", said[2])


@pytest.mark.parametrize("edit", [lambda path: path.write_text("// edited"), lambda path: path.unlink()])
def test_kept_headers_are_checked_on_every_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edit: object) -> None:
    _give_by_debian(monkeypatch, CONTENT)
    headers, _ = find(tmp_path)
    assert callable(edit)
    edit(headers.path / "onnxruntime_float16.h")
    with pytest.raises(SdkError, match=f"Remove '{re.escape(str(headers.path))}' and run the command again"):
        find(tmp_path)


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SdkError, match="Set XDG_CACHE_HOME"):
        find(tmp_path / "file")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/dev"}, "/home/dev/.cache/opmatrix"),
        ({"HOME": "/home/dev", "XDG_CACHE_HOME": "/var/cache"}, "/var/cache/opmatrix"),
        ({"HOME": "/home/dev", "XDG_CACHE_HOME": "relative"}, "/home/dev/.cache/opmatrix"),
    ],
)
def test_cache_folder(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == Path(folder)
