"""What the tests of several stores share."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor

from opmatrix.shared_cache.store import Store


def use_in_threads(store: Store) -> None:
    """Store 80 blobs in 8 threads, each of which reads them again."""
    blobs = {hashlib.sha256(text).hexdigest(): text for text in (b"%d" % n * 20_000 for n in range(80))}

    def put_and_get(digest: str) -> bytes | None:
        store.put("cas", digest, blobs[digest])
        return store.get("cas", digest)

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(put_and_get, blobs)] == [*blobs.values()]
