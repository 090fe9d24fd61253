"""Which entries of a store are taken: those that a signer signed for this very key, and that are what they say."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from opmatrix.addons.team import signing
from opmatrix.records.step import Step
from opmatrix.shared_cache import client, entry
from opmatrix.shared_cache.client import Client
from opmatrix.shared_cache.entry import Entry
from opmatrix.shared_cache.settings import CacheSettings
from opmatrix.shared_cache.store import Kind, TooLargeError

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")

KEY, OTHER = "a" * 64, "b" * 64


@dataclass
class Memory:
    """A store in memory."""

    url: str = "memory://x"
    kept: dict[tuple[Kind, str], bytes] = field(default_factory=dict)

    def get(self, kind: Kind, digest: str, largest: int | None = None) -> bytes | None:
        found = self.kept.get((kind, digest))
        if found is not None and largest is not None and len(found) > largest:
            raise TooLargeError("too large")
        return found

    def put(self, kind: Kind, digest: str, content: bytes) -> None:
        self.kept[kind, digest] = content

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class Side:
    """A clone: its client, and the warnings of it."""

    store: Memory
    root: Path
    settings: CacheSettings

    def __post_init__(self) -> None:
        self.warnings: list[str] = []
        self.client = Client(self.settings, self.store, root=self.root, warn=self.warnings.append)
        write = str(self.root / "build/x")
        self.step = Step(group="compile", name="x", command=("compile", "x"), writes=(write,))

    def fetch(self, key: str = KEY) -> tuple[bytes, str | None] | None:
        """Return the content of the file and the signer; then close the client."""
        hit = self.client.fetch(key, self.step)
        self.client.close()
        return (hit.entry.files["build/x"], hit.record.signer) if hit else None

    def put(self, content: bytes = b"right", key: str = KEY) -> Side:
        self.client.store(key, self.step, Entry(files={"build/x": content}, links={}, inputs={}), seconds=1.0)
        self.client.close()
        return self

    def change(self, edit: Callable[[str, dict[str, str]], tuple[str, dict[str, str]]]) -> None:
        """Replace the blob's digest, and its description, in the entry of KEY."""
        digest, size, told = entry.decode(self.store.kept["ac", KEY])
        digest, both = edit(digest, json.loads(told))
        blob = self.store.kept.get(("cas", digest), b"")
        self.store.kept["ac", KEY] = entry.encode(digest, len(blob) or size, json.dumps(both).encode())

    def damage(self, edit: Callable[[bytes], bytes]) -> None:
        """Change the only blob, under its old name."""
        (name,) = (key for key in self.store.kept if key[0] == "cas")
        self.store.kept[name] = edit(self.store.kept[name])

    def plant(self, content: bytes) -> str:
        """Store a blob with another content of the file; return its digest."""
        head = {"files": [["build/x", len(content), False]], "links": {}, "found": {}, "log": ""}
        blob = json.dumps(head).encode() + b"\n" + content
        self.store.kept["cas", (digest := hashlib.sha256(blob).hexdigest())] = blob
        return digest


Make = Callable[..., Side]
"""Takes names of signers, and in a clone that writes `key`: the name of one, or "none"."""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ci", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder / name)], check=True)
    return folder


@pytest.fixture
def make(tmp_path: Path, keys: Path) -> Make:
    store = Memory()

    def make_side(*signers: str, key: str | None = None) -> Side:
        lines = tuple(f"{name}@example.org {(keys / f'{name}.pub').read_text().strip()}" for name in signers)
        file = keys / key if key in ("ci", "stranger") else None
        settings = CacheSettings(url=store.url, mode="write" if key else "read", signers=lines, key=file)
        return Side(store, tmp_path, settings)

    return make_side


def test_the_signer_and_the_key_are_named(make: Make, keys: Path) -> None:
    make("ci", key="ci").put()
    printed = subprocess.run(["ssh-keygen", "-l", "-f", str(keys / "ci.pub")], capture_output=True, text=True).stdout
    assert make("ci").fetch() == (b"right", f"ci@example.org {printed.split()[1]}")
    assert make().fetch() == (b"right", None)  # nobody asked
    assert make("stranger").fetch() is None  # the signer was removed


@pytest.mark.parametrize("key", ["stranger", "none"])
def test_what_no_signer_signed_is_refused_with_one_note(make: Make, key: str) -> None:
    make("ci", key=key).put()
    make("ci", key=key).put(key=OTHER)
    reader = make("ci")
    assert reader.client.fetch(OTHER, reader.step) is None
    assert reader.fetch() is None
    assert reader.warnings == ["2 results of the shared cache were not taken: no signer in pyproject.toml signed them"]


def test_another_blob_under_a_signed_entry_is_refused(make: Make) -> None:
    writer = make("ci", key="ci").put()
    writer.change(lambda _, told: (writer.plant(b"poisoned"), told))
    assert make("ci").fetch() is None
    assert make().fetch() == (b"poisoned", None)  # the plant is what a client without signers takes


def test_a_changed_record_is_refused(make: Make) -> None:
    make("ci", key="ci").put().change(
        lambda digest, told: (digest, told | {"record": told["record"].replace("compile:x", "compile:y")})
    )
    assert make("ci").fetch() is None


def test_the_signature_of_another_step_is_refused(make: Make) -> None:
    """Replayed: whole entry and blob of one key under another one, as of the step before a fix."""
    kept = make("ci", key="ci").put().store.kept
    kept["ac", OTHER] = kept["ac", KEY]
    assert make("ci").fetch(OTHER) is None
    assert make().fetch(OTHER) == (b"right", None)


def test_a_signature_of_another_key_is_refused(make: Make, keys: Path) -> None:
    writer = make("ci", key="ci").put()

    def resign(_: str, told: dict[str, str]) -> tuple[str, dict[str, str]]:
        digest = writer.plant(b"poisoned")
        signed = entry.message(key=KEY, blob=digest, record=told["record"].encode())
        return digest, told | {"signature": signing.sign(signed, keys / "stranger")}

    writer.change(resign)
    assert make("ci").fetch() is None
    taken = make("ci", "stranger").fetch()
    assert taken and taken[0] == b"poisoned"  # the plant is signed, by another


@pytest.mark.parametrize("signature", [None, 5, "", "x", ["-----BEGIN SSH SIGNATURE-----"], "\ud800"])
def test_no_signature_at_all_is_refused(make: Make, signature: Any) -> None:
    make("ci", key="ci").put().change(lambda digest, told: (digest, told | {"signature": signature}))
    reader = make("ci")
    assert reader.fetch() is None
    assert len(reader.warnings) == 1


def test_a_damaged_blob_is_not_taken(make: Make) -> None:
    make("ci", key="ci").put().damage(lambda blob: blob.replace(b"right", b"wrong"))
    reader = make("ci")
    assert reader.fetch() is None
    assert reader.warnings == ["damaged in the shared cache, so it was computed: compile:x: "
                               "the blob has another digest than its name"]  # fmt: skip


def test_a_blob_that_is_larger_than_its_entry_says_is_not_read(make: Make) -> None:
    make("ci", key="ci").put().damage(lambda blob: blob + bytes(10_000))
    reader = make("ci")
    assert reader.fetch() is None
    assert "the blob is larger than its entry says" in reader.warnings[0]


def test_without_ssh_keygen_nothing_is_taken_with_one_warning(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("ci", key="ci").put()
    monkeypatch.setenv("PATH", str(tmp_path))
    reader = make("ci")
    assert reader.fetch() is None
    assert len(reader.warnings) == 1 and "left out from here on: cannot run ssh-keygen" in reader.warnings[0]


@pytest.mark.parametrize("size", [3_000_000_000, (1 << 63) - 1])
def test_an_entry_of_a_giant_blob_is_not_taken(make: Make, size: int) -> None:
    kept = make(key="none").put().store.kept
    digest, _, told = entry.decode(kept["ac", KEY])
    kept["ac", KEY] = entry.encode(digest, size, told)
    assert make().fetch() is None


# At 71b51ad8: those with 400 digits ended a thread, and the cache was told as slow; the others were right.
@pytest.mark.parametrize("record", [
    '{"step": "x", "seconds": Infinity, "outputs": {}}', '{"step": "x", "seconds": NaN, "outputs": {}}',
    '{"step": "x", "seconds": -1, "outputs": {}}', '{"step": "x", "seconds": 1e300, "outputs": {}}',
    f'{{"step": "x", "seconds": {"9" * 400}, "outputs": {{}}}}',
    f'{{"step": "x", "seconds": -{"9" * 400}, "outputs": {{}}}}',
    '{"step": "x", "seconds": "1e999", "outputs": {}}', '{"step": "x", "seconds": [], "outputs": {}}',
    '{"step": "x", "seconds": 1, "outputs": []}', '"\ud800"', "[" * 100_000, "9" * 5000, "{}", "",
    "\x80\x04K\x01.",  # a pickle
])  # fmt: skip
def test_a_record_that_is_none_costs_one_warning(make: Make, record: str) -> None:
    make(key="none").put().change(lambda digest, told: (digest, told | {"record": record}))
    reader = make()
    assert reader.fetch() is None
    assert reader.warnings == [
        "the shared cache is left out from here on: memory://x answers with something else than results of steps"
    ]


# At 71b51ad8: each was printed as it is.
@pytest.mark.parametrize("step", [
    "verify:x\nall right, sent by your CI", "compile:x\r\x1b[2K", "\u202ecompile:x", "x" * 10**6,
    "a\u2028b\x85c\x0bd", "\n" * 9,
])  # fmt: skip
def test_the_name_of_a_step_is_a_part_of_one_line(make: Make, step: str) -> None:
    writer = make(key="none").put()
    writer.change(lambda digest, told: (digest, {"record": json.dumps(json.loads(told["record"]) | {"step": step})}))
    writer.damage(lambda blob: blob[:-1] + b"?")
    reader = make()
    assert reader.fetch() is None
    (said,) = reader.warnings
    assert said.isprintable() and len(said) < 400 and said.endswith("the blob has another digest than its name")


# At 71b51ad8: none but OSError had an answer in 15 s.
@pytest.mark.parametrize(
    "error",
    [
        ZeroDivisionError("by zero"), MemoryError(), KeyError("x"), RecursionError("deep"), OverflowError("too\nlarge"),
        UnicodeDecodeError("ascii", b"\xff", 0, 1, "ordinal"), AssertionError("\x1b[2K"), OSError("gone"),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("kind", ["ac", "cas"])
def test_every_thread_answers_whatever_a_store_raises(
    make: Make, monkeypatch: pytest.MonkeyPatch, kind: str, error: Exception
) -> None:
    make(key="none").put()
    got = Memory.get

    def get(store: Memory, of: Kind, digest: str, largest: int | None = None) -> bytes | None:
        if of == kind:
            raise error
        return got(store, of, digest, largest)

    monkeypatch.setattr(Memory, "get", get)
    monkeypatch.setattr(client, "PATIENCE", 1000.0)  # only an answer ends the wait
    reader = make()
    assert reader.fetch() is None and reader.fetch(OTHER) is None
    (said,) = reader.warnings
    assert said.startswith("the shared cache is left out from here on: ") and said.isprintable()
