"""A worker that is killed, has a full disk, or cannot be reached, and a scheduler that is gone: nothing is lost."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.addons.team.conftest import Shop
from tests.incremental.conftest import wait_for
from tests.support.workers import cluster

pytestmark = pytest.mark.incremental


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    made = Shop(tmp_path / "client", tmp_path / "store")
    made.step("data:b", "slow", "a.txt", "build/b.npz")
    made.step("export:b", "copy", "build/b.npz", "build/b.onnx")
    yield made
    made.close()


def test_what_a_killed_worker_ran_runs_on_another(tmp_path: Path, shop: Shop) -> None:
    with cluster(tmp_path / "dask", "one") as found:
        process = shop.begun(found, "one", "b.npz")
        found.start("two")
        found.kill("one")
        wait_for(lambda: "b.npz" in found.peek("two"))
        found.let_go("two")
        out, _ = process.communicate()
        assert process.returncode == 0, out
        assert shop.read("build/b.onnx") == shop.read("build/b.npz") == "HELLO # A REMARK"
        assert shop.ran() == ["a.h"]
        assert {"b.npz", "b.onnx"} <= {*found.ran("two")}, out


@pytest.mark.parametrize(
    ("gone", "said"),
    [("worker", "ran here: no worker is there"), ("scheduler", "the workers are left out from here on: ")],
)
def test_a_run_whose_scheduler_is_killed_goes_on_here(tmp_path: Path, shop: Shop, gone: str, said: str) -> None:
    """And one whose only worker is killed."""
    with cluster(tmp_path / "dask", "one") as found:
        process = shop.begun(found, "one", "b.npz")
        (shop.root / "go").touch()
        found.kill("one") if gone == "worker" else found.scheduler.kill()
        out, _ = process.communicate()
    assert process.returncode == 0 and out.count(said) == 1 and "Traceback" not in out, out
    assert shop.read("build/b.onnx") == "HELLO # A REMARK" and {"b.npz", "b.onnx"} <= {*shop.ran()}


def test_a_worker_with_a_full_disk_loses_nothing(tmp_path: Path, shop: Shop) -> None:
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("no mount namespaces here")
    shop.steps[-2]["command"][0] = "big"  # 4 MB
    folder = tmp_path / "dask/small"
    mount = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=2m none "{folder}" && exec "$@"', "sh"]
    with cluster(tmp_path / "dask") as found:
        found.start("small", before=mount)
        process = shop.popen("--on", found.address, **shop.caching())
        out, _ = process.communicate()
        assert process.returncode == 0, out
        # data:b fills the disk, and a step beside it may be the first that is refused
        assert re.search(r"^the worker small refused \d steps?: \S+: (its disk is full|cannot write)", out, re.M), out
        assert (shop.root / "build/b.npz").stat().st_size == 4 << 20
        found.start("large")
        shutil.rmtree(shop.root / "build")
        shutil.rmtree(tmp_path / "store")
        out = shop.on(found.address)
        assert "b.npz" in found.ran("large"), out
        assert shop.ran().count("b.npz") == 1, "at home, in the run before alone"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, r"--on tcp://127\.0\.0\.1:9: no scheduler answers there.*Start one: dask scheduler"),
        ({"OPMATRIX_CACHE": ""}, "workers share nothing with this machine but the shared cache, and none is set"),
        ({"OPMATRIX_CACHE_MODE": "read"}, "is 'read', and workers get from it what they need"),
    ],
)
def test_workers_need_a_scheduler_and_a_cache_that_may_be_written(
    shop: Shop, environment: dict[str, str], expected: str
) -> None:
    out = shop.on("tcp://127.0.0.1:9", code=2, **environment)
    assert re.search(expected, out) and "Traceback" not in out and shop.ran() == []


def test_steps_of_an_environment_run_where_it_is_offered(tmp_path: Path, shop: Shop) -> None:
    shop.steps[-2]["command"][0] = "copy"
    shop.steps[-2]["environment"] = "torch2.9"
    with cluster(tmp_path / "dask") as found:
        found.start("other", "--resources", "torch2.6=1")
        found.start("right", "--resources", "torch2.9=1 memory=9000")
        out = shop.on(found.address)
        assert ["b.npz" in found.ran(name) for name in ("other", "right")] == [False, True], out


def certificates(folder: Path) -> tuple[str, str, str]:
    """Make an authority and a certificate that it signed; return the files of the authority, certificate and key."""
    folder.mkdir()
    for command in (
        "req -newkey rsa:2048 -nodes -batch -x509 -days 1 -subj /CN=authority -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -batch -subj /CN=team -keyout key.pem -out request.pem",
        "x509 -req -days 1 -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -out cert.pem",
    ):
        subprocess.run(["openssl", *command.split()], cwd=folder, check=True, capture_output=True)
    return str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_tls_with_certificates_of_ones_own(tmp_path: Path, shop: Shop) -> None:
    shop.steps[-2]["command"][0] = "copy"
    ca, cert, key = certificates(tmp_path / "certificates")
    options = ("--tls-ca-file", ca, "--tls-cert", cert, "--tls-key", key)
    with cluster(tmp_path / "dask", "one", protocol="tls", security=options) as found:
        assert found.address.startswith("tls://")
        without = shop.on(found.address, code=2)
        assert "TLS needs certificates. Set DASK_DISTRIBUTED__COMM__TLS__CA_FILE" in without

        def variables(cert: str, key: str) -> dict[str, str]:
            tls = {"CA_FILE": ca, "CLIENT__CERT": cert, "CLIENT__KEY": key}
            return {f"DASK_DISTRIBUTED__COMM__TLS__{name}": value for name, value in tls.items()}

        assert "5 steps ran on 1 worker (one: 5)" in shop.on(found.address, **variables(cert, key))
        stranger = certificates(tmp_path / "others")[1:]
        shop.write("a.txt", "another text")
        assert "no scheduler answers there" in shop.on(found.address, code=2, **variables(*stranger))
