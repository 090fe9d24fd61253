"""What `doit --on` takes."""

from __future__ import annotations

import pytest

from opmatrix.addons.team.on import Address
from opmatrix.basics.errors import UsageError

SCHEDULERS = (
    "tls://lab.example.org:8786", "tls://10.0.0.7:8786", "tcp://localhost:8786", "tcp://127.0.0.1:8786",
    "tcp://[::1]:8786",
)  # fmt: skip
REFUSED = ("", "local", "local:-1", "lab:8786", "http://lab:8786", "tls://lab", "tls://lab:x", "tls://a b:1")


def test_addresses() -> None:
    assert Address.parse("local:4") == Address(local=4)
    assert [Address.parse(text) for text in SCHEDULERS] == [Address(scheduler=text) for text in SCHEDULERS]
    with pytest.raises(UsageError, match="local:0 has no worker"):
        Address.parse("local:0")


@pytest.mark.parametrize("text", REFUSED)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"found '.*', allowed: tls://HOST:PORT of a dask scheduler"):
        Address.parse(text)


@pytest.mark.parametrize("host", ["lab.example.org", "10.0.0.7", "0.0.0.0", "localhost.example.org", "[2001:db8::1]"])
def test_without_tls_only_this_machine(host: str) -> None:
    with pytest.raises(UsageError, match=r"without TLS, each program that reaches it can run code on its workers"):
        Address.parse(f"tcp://{host}:8786")
