"""How long a run waits for a store, and for what first. The settings of the shared cache: what they mean, and one
message per mistake.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.project.paths import Paths
from opmatrix.records.step import Step
from opmatrix.shared_cache import client as module
from opmatrix.shared_cache.client import Client
from opmatrix.shared_cache.settings import CacheSettings, read
from opmatrix.shared_cache.store import Kind
from tests.incremental.conftest import wait_for

STEP = Step(group="data", name="a", command=("copy",))


class Clock:
    """Seconds that pass only where a store answers. `waits`: what steps have begun to wait for."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, list[object]()

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made, result = Clock(), module.Future[None].result

    def wait(coming: module.Future[None], _: float) -> None:
        made.waits.append(coming)
        return result(coming)

    monkeypatch.setattr(module, "time", made)
    monkeypatch.setattr(module.Future, "result", wait)
    return made


class SlowStore:
    """A store that has nothing, and answers when `answer` returns. `asked`: the keys, in order."""

    url = "slow:"

    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer, self._guard = answer, threading.Lock()
        self.asked: list[str] = []

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> None:
        with self._guard:
            self.asked.append(digest)
        self._answer()

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        self.get(kind, digest)

    def close(self) -> None: ...


def made(store: SlowStore, warnings: list[str]) -> Client:
    return Client(CacheSettings(url=store.url, mode="write"), store, root=Path("/project"), warn=warnings.append)


def test_what_a_step_waits_for_is_asked_before_what_steps_will_need(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_THREADS", 1)
    needed = threading.Event()
    store = SlowStore(needed.wait)
    client = made(store, [])
    for number in range(50):
        client.look_up(f"ahead {number}")
    in_background = client.in_background

    def seen(work: Callable[[], None], *, order: int = module._NEEDED) -> None:
        in_background(work, order=order)
        needed.set()

    monkeypatch.setattr(client, "in_background", seen)
    assert client.fetch("ahead 49", STEP) is None
    assert store.asked.index("ahead 49") <= 1, "the first was asked before"
    client.close()
    assert store.asked.count("ahead 49") == 1


def test_steps_that_wait_at_the_same_time_wait_once(clock: Clock) -> None:
    """Eight steps wait 0.5 s each: 0.4 s longer than usual. One after the other that is more than a run waits."""
    warnings = list[str]()

    def pass_by() -> None:
        wait_for(lambda: len(clock.waits) == len(store.asked))
        clock.now += 0.5

    store = SlowStore(threading.Barrier(8, pass_by).wait)
    client = made(store, warnings)
    for _ in range(2):
        names = [f"{_} {number}" for number in range(8)]
        threads = [threading.Thread(target=client.fetch, args=(name, STEP)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not client.lost and warnings == []


def test_a_store_that_is_always_slow_costs_two_seconds_in_all(clock: Clock) -> None:
    warnings = list[str]()

    def answer() -> None:
        wait_for(lambda: len(clock.waits) == len(store.asked))
        clock.now += 0.8

    client = made(store := SlowStore(answer), warnings)
    for number in range(8):
        client.fetch(str(number), STEP)
    assert client.lost and store.asked == ["0", "1", "2"]
    assert warnings == ["the shared cache is left out from here on: it is slow"]


def test_a_store_that_is_far_away_is_not_slow(clock: Clock) -> None:
    """Nothing asks for an entry of others ahead of need, so each request takes as long as the way to the store."""
    warnings = list[str]()

    def answer() -> None:
        wait_for(lambda: len(clock.waits) == len(store.asked))
        clock.now += 0.2

    client = made(store := SlowStore(answer), warnings)
    for _ in range(20):
        client.get_entry("key")
    client.close()
    assert not warnings


PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIENftjgiitC6h3Q+V0Eu7n2R6wRW/vZQD24wnrbK/dqO"
URL = "url = 'https://cache.example.org/ops'\n"


def read_table(folder: Path, table: str, **environ: str) -> CacheSettings | None:
    (folder / "pyproject.toml").write_text(f"[tool.opmatrix.cache]\n{table}" if table else "")
    return read(Paths(folder), environ)


def test_a_project_without_a_cache(tmp_path: Path) -> None:
    assert read(Paths(tmp_path / "none"), {}) is None
    assert read_table(tmp_path, "", OPMATRIX_CACHE_MODE="write") is None
    for table, environ in (
        ("", {}),
        (f"{URL}mode = 'off'\n", {}),
        (f"mode = 'write'\nsigners = ['ci {PUBLIC}']\n", {}),  # each machine has its address
        ("mode = 'wrong'\n", {"OPMATRIX_CACHE": "off"}),  # off needs no valid settings
        ("mode = 'wrong'\n", {"OPMATRIX_CACHE_MODE": "off"}),
    ):
        assert read_table(tmp_path, table, **environ) is None, table


def test_the_settings_and_their_defaults(tmp_path: Path) -> None:
    assert read_table(tmp_path, URL) == CacheSettings(
        url="https://cache.example.org/ops", mode="read", prove="shared", signers=(), key=None, megabytes=None
    )
    (tmp_path / "key").write_text("")
    table = f"{URL}mode = 'write'\nprove = 'local'\nsigners = ['ci@example.org {PUBLIC}']\nsize = '1.5 GB'\n"
    assert read_table(tmp_path, table, OPMATRIX_CACHE_KEY=str(tmp_path / "key")) == CacheSettings(
        url="https://cache.example.org/ops", mode="write", prove="local", signers=(f"ci@example.org {PUBLIC}",),
        key=tmp_path / "key", megabytes=1500,
    )  # fmt: skip


def test_variables_override_the_table(tmp_path: Path) -> None:
    elsewhere = {"OPMATRIX_CACHE": "file:///srv/x"}
    found = read_table(tmp_path, f"{URL}mode = 'read'\n", OPMATRIX_CACHE_MODE="check", **elsewhere)
    assert found and (found.url, found.mode) == ("file:///srv/x", "check")
    assert read_table(tmp_path, "", **elsewhere) == CacheSettings(url="file:///srv/x")
    found = read_table(tmp_path, f"{URL}mode = 'off'\n", OPMATRIX_CACHE_MODE="read")
    assert found and found.mode == "read"
    table = f"mode = 'write'\nsigners = ['ci {PUBLIC}']\n"
    found = read_table(tmp_path, table, OPMATRIX_CACHE_MODE="read", **elsewhere)
    assert found and found.signers == (f"ci {PUBLIC}",)


@pytest.mark.parametrize(
    ("table", "environ", "expected"),
    [
        ("url = 5\n", {}, "url: found 5, allowed: an address such as 'https"),
        (f"{URL}mode = 'rw'\n", {}, "mode: found 'rw', allowed: 'read', 'write', 'check', 'off'"),
        (f"{URL}mode = ['read']\n", {}, r"mode: found \['read'\], allowed"),
        (URL, {"OPMATRIX_CACHE_MODE": "rw"}, "^OPMATRIX_CACHE_MODE: found 'rw', allowed: 'read'"),
        (f"{URL}prove = true\n", {}, "prove: found True, allowed: 'shared', 'local'"),
        (f"{URL}signer = []\n", {}, "signer: unknown setting, allowed: url, .*did you mean 'signers'"),
        (f"{URL}key = 'x'\n", {}, "key: unknown setting, allowed"),
        (f"{URL}size = 20\n", {}, "size: found 20, allowed: a size above 0 such as '500 MB' or '20 GB'"),
        (f"{URL}size = '0 GB'\n", {}, "size: found '0 GB', allowed"),
        (f"{URL}signers = 'ci'\n", {}, "signers: found 'ci', allowed: a list of lines"),
        (f"{URL}signers = [1]\n", {}, r"signers: found \[1\], allowed: a list of lines"),
        (f"{URL}signers = ['ci {PUBLIC}', 'ci']\n", {}, "signers: line 2: found 'ci', allowed: name, type and public"),
        (f"{URL}mode = 'write'\nsigners = ['ci {PUBLIC}']\n", {}, "but no key is set. Set OPMATRIX_CACHE_KEY to the"),
        (URL, {"OPMATRIX_CACHE_KEY": "/none"}, "OPMATRIX_CACHE_KEY: there is no file '/none'; allowed: the path of"),
    ],
)  # fmt: skip
def test_each_mistake_has_a_message(tmp_path: Path, table: str, environ: dict[str, str], expected: str) -> None:
    with pytest.raises(UsageError, match=expected):
        read_table(tmp_path, table, **environ)


def test_all_mistakes_are_reported_at_once_also_without_an_address(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_table(tmp_path, "mode = 'rw'\nprove = 'x'\n")
    assert [line.split(": ")[2].split()[0] for line in str(caught.value).splitlines()] == ["mode", "prove"]


@pytest.mark.parametrize("table", ["", "signers = ['''-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n''']\n"])
def test_a_private_key_in_the_wrong_place_is_not_printed(tmp_path: Path, table: str) -> None:
    environ = {} if table else {"OPMATRIX_CACHE_KEY": "-----BEGIN OPENSSH PRIVATE KEY-----\nsecret"}
    with pytest.raises(UsageError, match=r"private key|contains a key") as caught:
        read_table(tmp_path, URL + table, **environ)
    assert "secret" not in str(caught.value)
