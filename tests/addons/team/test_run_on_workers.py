"""Steps on workers that share nothing with the run but the cache: who runs what, and what comes home."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.addons.team.conftest import Shop
from tests.incremental.conftest import processes, wait_for
from tests.support.workers import Cluster, cluster

pytestmark = pytest.mark.incremental
CHAIN = ["a.g", "a.npz", "a.onnx"]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with one worker, which no test kills."""
    with cluster(tmp_path_factory.mktemp("cluster") / "dask", "one") as made:
        yield made


@pytest.fixture
def shop(tmp_path: Path, here: Cluster) -> Iterator[Shop]:
    here.ran("one")  # that of other tests
    made = Shop(tmp_path / "client", tmp_path / "store")
    yield made
    made.close()


def test_a_worker_runs_what_can_travel_and_again_what_changes(here: Cluster, shop: Shop, tmp_path: Path) -> None:
    out = shop.on(here.address)
    assert here.ran("one") == CHAIN, out
    assert shop.ran() == ["a.h"] and shop.read("build/a.onnx") == "HELLO "
    assert "3 steps ran on 1 worker (one: 3)" in out
    assert "all up to date" in shop.on(here.address)
    info = shop.doit("info", "export:a", **shop.caching()).stdout
    assert f"from the shared cache {shop.url}, computed by the worker one of {here.address}" in info
    servers = here.servers("one")
    shop.write("a.txt", "good day # a remark")
    shop.on(here.address)
    assert here.ran("one") == CHAIN and shop.read("build/a.onnx") == "GOOD DAY "
    assert servers and servers <= here.servers("one"), "they are kept from run to run"
    shop.steps[1]["config"] = "numpy 3"
    shop.on(here.address)
    assert here.ran("one") == ["a.npz"], "what it reads came from the shared cache, or was there"
    shop.url = (tmp_path / "another").as_uri()
    shutil.rmtree(shop.root / "build")
    out = shop.on(here.address)
    assert "refused" not in out and here.ran("one") == CHAIN, "another cache for the same sources"


def test_a_worker_whose_packages_changed_starts_anew(here: Cluster, shop: Shop, tmp_path: Path) -> None:
    """The server of a project has imported what was installed when it started."""
    shop.on(here.address)
    before = here.servers("one")
    metadata = here.packages / "jinja2-99.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: jinja2\nVersion: 99\n")
    for folder in (shop.root / "build", tmp_path / "store"):  # all else is as it was
        shutil.rmtree(folder)
    shop.on(here.address, PYTHONPATH=here.pythonpath)
    shutil.rmtree(metadata.parent)
    assert before and not before & here.servers("one")
    assert here.ran("one") == [*CHAIN, *CHAIN]


@pytest.mark.parametrize("before", [False, True], ids=["nothing", "what changed"])
def test_what_was_computed_here_is_given_to_the_worker(before: bool, here: Cluster, shop: Shop) -> None:
    """Also in the place of what it has."""
    if before:
        shop.on(here.address)
        here.ran("one")
    shop.write("a.txt", "good day")
    done = shop.doit("codegen:a", "data:a", OPMATRIX_CACHE="off")
    assert done.returncode == 0, done.stdout
    shop.on(here.address)
    assert here.ran("one") == ["a.onnx"] and shop.read("build/a.onnx") == "GOOD DAY"


def test_a_failure_comes_home(here: Cluster, shop: Shop) -> None:
    shop.step("verify:b", "verify", "wrong.txt", "build/b.json", verdict="build/b.json", server="onnx")
    shop.write("wrong.txt", "wrong")
    out = shop.on(here.address, code=1)
    assert "2 of 64 elements differ" in out
    assert "2 of 64 elements differ" in shop.read("build/log/verify/b.log")
    assert json.loads(shop.read("build/b.json"))["outcome"] == "mismatched"
    assert sorted(here.ran("one")) == [*CHAIN, "b.json"], "and it runs once"


@pytest.mark.parametrize(
    ("command", "limits", "expected"),
    [
        ("abort", {}, "died of SIGABRT"),
        ("hang", {"seconds": 1}, "did not end within 1 s and was stopped"),
        ("gobble", {"megabytes": 300}, "took more than 300 MB of memory and was stopped"),
        ("flood", {}, "MB and was stopped"),
        ("end", {}, "ended with exit code 0 before it was done"),
    ],
)
def test_limits_hold_on_a_worker(
    here: Cluster, shop: Shop, command: str, limits: dict[str, float], expected: str
) -> None:
    shop.step("export:b", command, "a.txt", "build/b.onnx", **limits)
    out = shop.on(here.address, code=1)
    assert expected in out
    assert shop.read("build/a.onnx") == "HELLO ", "the other steps end"
    assert "b.onnx" not in shop.ran(), "it does not run again here"


def test_ctrl_c_ends_the_step_on_the_worker(here: Cluster, shop: Shop) -> None:
    shop.step("export:b", "slow", "a.txt", "build/b.onnx")
    process = shop.begun(here, "one", "b.onnx")
    step = here.slow_step("one")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130, out
    assert "Traceback" not in out and "left out" not in out, out
    wait_for(lambda: not step.exists())
    here.ran("one")
    shop.steps.pop()
    assert "b.onnx" not in shop.ran(), "nor does this machine begin it"
    assert "steps in" in shop.on(here.address), "and the worker takes the next step"


def test_what_differs_on_a_worker_is_refused_with_the_reason(here: Cluster, shop: Shop) -> None:
    shop.steps[1]["config"] = json.dumps({"compiler": "COMPILER"})
    out = shop.on(here.address)  # its dodo.py, unlike the plan of the worker, does not replace COMPILER
    assert "the worker one refused 1 step: data:a: it would be made from something else (there -> here): " in out
    assert "compiler COMPILER -> g++ 12" in out
    assert here.ran("one") == ["a.g", "a.onnx"] and sorted(shop.ran()) == ["a.h", "a.npz"]


def test_sources_that_change_meanwhile_are_refused(here: Cluster, shop: Shop) -> None:
    """A file that is edited while the worker runs the step before the one that reads it."""
    shop.step("codegen:b", "slow", "a.txt", "build/b.g")
    shop.step("data:b", "copy", "b.txt", "build/b.npz", after=["codegen:b"])
    shop.write("b.txt", "before")
    process = shop.begun(here, "one", "b.g")
    shop.write("b.txt", "edited meanwhile")
    here.let_go("one")
    out, _ = process.communicate()
    assert "refused 1 step: data:b: it would be made from something else (there -> here): b.txt" in out
    assert shop.read("build/b.npz") == "EDITED MEANWHILE" and process.returncode == 0


def test_a_step_that_no_worker_has_the_memory_for_runs_at_home(here: Cluster, shop: Shop) -> None:
    shop.steps[1]["megabytes"] = 10_000_000
    out = shop.on(here.address)
    assert "1 step ran here: none offers memory 1e+07" in out
    assert here.ran("one") == ["a.g", "a.onnx"]


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")
def test_a_worker_without_a_key_is_refused_where_signers_are_named(here: Cluster, shop: Shop, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    shop.write("pyproject.toml", shop.read("pyproject.toml") + f"\n[tool.opmatrix.cache]\nsigners = ['ci {public}']\n")
    out = shop.on(here.address, OPMATRIX_CACHE_KEY=str(key))
    assert "the worker one refused 3 steps" in out and "no key is set. Set OPMATRIX_CACHE_KEY" in out
    assert shop.read("build/a.onnx") == "HELLO " and here.ran("one") == []


def test_workers_that_the_run_starts_end_with_it_and_by_ctrl_c_in_a_terminal(shop: Shop) -> None:
    """All processes of the terminal get the signal, the workers too."""
    done = shop.doit("--on", "local:2", OPMATRIX_CACHE="")
    assert done.returncode == 0 and "3 steps ran on " in done.stdout, done.stdout + done.stderr
    assert shop.read("build/a.onnx") == "HELLO " and shop.ran() == ["a.h"]
    assert not (shop.root / "build/workers").exists() and processes(shop.root) == []
    shop.step("export:b", "slow", "a.txt", "build/b.onnx")
    process = shop.popen("--on", "local:2", before=["setsid"], OPMATRIX_CACHE="")
    wait_for(lambda: any(path.read_text() for path in shop.root.glob("build/workers/**/slow.pid")))
    os.killpg(process.pid, signal.SIGINT)
    out, _ = process.communicate()
    assert process.returncode == 130, out
    assert out.endswith("interrupted; what had finished is kept\n") and "Traceback" not in out, out
    wait_for(lambda: processes(shop.root) == [])
    assert not (shop.root / "build/workers").exists()
    assert "b.onnx" not in shop.ran(), "this machine does not begin it while the workers end"
