"""Clones that share results on a real server, and in one folder at once."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from opmatrix.shared_cache.entry import decode
from opmatrix.shared_cache.gc import collect_garbage, list_files
from tests.incremental.conftest import ALL, Clone
from tests.incremental.test_shared_cache import WARNING
from tests.support.nginx import WITH_PASSWORDS, nginx

pytestmark = pytest.mark.incremental
CHAINS = 12


def with_chains(folder: Path, url: str) -> Clone:
    """A clone with more steps, so that two clones are at work for a while."""
    clone = Clone(folder, url)
    for number in range(CHAINS):
        clone.write(f"{number}.txt", f"text {number} " * 1000)
        clone.step(f"data:{number}", "copy", f"{number}.txt", f"build/{number}.g")
        clone.step(f"export:{number}", "copy", f"build/{number}.g", f"build/{number}.onnx", links=[])
    return clone


def outputs(clone: Clone) -> dict[str, str]:
    return {f"{n}.{end}": clone.read(f"build/{n}.{end}") for n in range(CHAINS) for end in ("g", "onnx")}


def run_at_once(clones: list[Clone], url: str, *, meanwhile: Path | None) -> None:
    """Run doit in all clones; `meanwhile`, a folder is reduced to nothing again and again."""
    writes = {"OPMATRIX_CACHE": url, "OPMATRIX_CACHE_MODE": "write"}
    processes = [clone.popen("-n", "2", **writes) for clone in clones]
    while meanwhile and any(process.poll() is None for process in processes):
        collect_garbage(meanwhile, limit=1)
        time.sleep(0.01)
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    assert "shared cache is left out" not in "".join(printed)
    assert "damaged" not in "".join(printed)


@pytest.mark.parametrize("garbage", [False, True], ids=["alone", "during --gc"])
def test_two_clones_use_a_folder_at_once(tmp_path: Path, garbage: bool) -> None:
    store = tmp_path / "store"
    clones = [with_chains(tmp_path / name, store.as_uri()) for name in ("first", "second")]
    run_at_once(clones, store.as_uri(), meanwhile=store if garbage else None)
    assert outputs(clones[0]) == outputs(clones[1])
    listed = list_files(store)
    assert listed.partial == ()
    if not garbage:
        read = [decode(entry.path.read_bytes()) for entry in listed.entries.values()]
        assert {digest for digest, _, _ in read} <= listed.blobs.keys()
        third = with_chains(tmp_path / "third", store.as_uri())
        third.run()
        assert third.ran() == ["a.h"]
        assert outputs(third) == outputs(clones[0])


def test_clones_share_on_nginx_where_one_of_them_may_write(tmp_path: Path) -> None:
    with nginx(tmp_path / "nginx", server=WITH_PASSWORDS) as server:
        (tmp_path / "nginx/passwords").write_text("ci:{PLAIN}secret\n")
        writer = Clone(tmp_path / "writer", server.url.replace("//", "//ci:secret@") + "/team")
        assert "secret" not in writer.run()
        reader = Clone(tmp_path / "reader", server.url + "/team")
        assert "1 run, 3 from the shared cache" in reader.run(mode="read")
        assert reader.ran() == ["a.h"]
        assert reader.read("build/a.onnx") == writer.read("build/a.onnx")
        # One that may not write, but tries: a warning, and the results are those that it computes.
        reader.write("a.txt", "other")
        out = reader.run()
        assert out.count(WARNING) == 1
        assert re.search("PUT of /(ac|cas)/ is answered with 401 Unauthorized", out)
        assert sorted(reader.ran()) == ALL


def test_nginx_that_is_killed_while_doit_runs_costs_one_warning(tmp_path: Path) -> None:
    with nginx(tmp_path / "nginx") as server:
        clone = Clone(tmp_path / "clone", server.url)
        clone.step("data:slow", "slow", "build/a.onnx", "build/slow.g")
        clone.step("export:slow", "copy", "build/slow.g", "build/slow.onnx", links=[])
        process = clone.popen(OPMATRIX_CACHE=server.url, OPMATRIX_CACHE_MODE="write")
        clone.slow_step()
        server.kill()
        clone.write("go", "")
        out = process.communicate()[0]
        assert process.returncode == 0, out
        assert out.count(WARNING) == 1
    assert clone.read("build/slow.onnx") == "HELLO "
