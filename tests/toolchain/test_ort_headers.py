"""opmatrix.toolchain.ort_headers: the headers in opmatrix, and which others are refused."""

from __future__ import annotations

import re
from hashlib import sha256
from pathlib import Path

import pytest

from opmatrix.basics.errors import ToolchainError
from opmatrix.toolchain import ort_headers
from opmatrix.toolchain.ort_headers import C_API, INCLUDED, OrtHeaders, find_headers

ROW = re.compile(r"\| (?P<file>\S+) \| MIT \| (?P<digest>[0-9a-f]{64}) \|")


def header(folder: Path, version: int, more: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / C_API).write_text(f"#pragma once\n#define ORT_API_VERSION {version}\n{more}")
    return folder


def identity(folder: Path) -> str:
    return find_headers({"OPMATRIX_ORT_INCLUDE": str(folder)}).identity


def test_the_files_are_those_of_the_table() -> None:
    text = (INCLUDED / "README.md").read_text()
    rows = [found for line in text.splitlines() if (found := ROW.fullmatch(line))]
    files = [path for path in INCLUDED.iterdir() if path.name != "README.md"]
    assert {row["file"]: row["digest"] for row in rows} == {p.name: sha256(p.read_bytes()).hexdigest() for p in files}
    assert {*ort_headers.files(INCLUDED), INCLUDED / "LICENSE"} == {*files}
    assert f"ONNX Runtime {ort_headers.VERSION}," in text


def test_the_headers_in_opmatrix_are_complete() -> None:
    found = find_headers({})
    assert found == OrtHeaders(path=INCLUDED, version=ort_headers.VERSION)
    assert found.version == f"1.{ort_headers.api_version(INCLUDED)}.0"
    headers = ort_headers.files(INCLUDED)
    included = {name for path in headers for name in re.findall(r'#include "(.*)"', path.read_text())}
    assert C_API in included and included <= {path.name for path in headers}


def test_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = header(tmp_path / "include", 24)
    assert find_headers({"OPMATRIX_ORT_INCLUDE": str(folder)}) == OrtHeaders(path=folder, version="1.24")
    monkeypatch.chdir(tmp_path)
    assert find_headers({"OPMATRIX_ORT_INCLUDE": "include"}).path == folder


def test_setting_without_headers(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ToolchainError, match=r"which contains no usable onnxruntime_c_api\.h"):
            identity(folder)


def test_setting_with_old_headers(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="API version 15; 18 or newer is needed"):
        identity(header(tmp_path, 15))


def test_the_identity_is_that_of_the_content(tmp_path: Path) -> None:
    one, two, edited = (header(tmp_path / name, 21, "// more\n" * (name == "edited")) for name in ("1", "2", "edited"))
    assert identity(one) == identity(two) != identity(edited)
    (two / "onnxruntime_float16.h").touch()
    assert identity(one) != identity(two)
