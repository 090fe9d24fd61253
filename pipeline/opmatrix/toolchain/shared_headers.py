"""ONNX Runtime's headers in the project's shared cache: a blob per header, under its pinned checksum.

Apart from `opmatrix.toolchain.ort_headers`, on whose code the key of each compile step depends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from opmatrix.cache.settings import CacheSettings
from opmatrix.cache.store import Store, StoreError
from opmatrix.cache.stores import open_store
from opmatrix.toolchain.ort_headers import CHECKSUMS, VERSION

_TIMEOUT = 2  # seconds for a header


class HeadersInCache:
    """The headers in a shared cache, which gets new ones in its mode "write". `say` receives a line for each event."""

    def __init__(self, cache: CacheSettings, say: Callable[[str], None]) -> None:
        self._cache, self._say = cache, say

    def take(self, into: Path) -> bool:
        """Copy all headers into a folder, and return whether the cache has them."""

        def copy(store: Store) -> bool:
            for name, digest in CHECKSUMS.items():
                content = store.get("cas", digest)
                if content is None or hashlib.sha256(content).hexdigest() != digest:
                    return False
                (into / name).write_bytes(content)
            self._say(f"the headers of ONNX Runtime {VERSION} are from the shared cache, {store.url}")
            return True

        return self._with_store(copy)

    def give(self, headers: Path) -> None:
        """Store the headers of a folder, if the cache may be written: those that it lacks, of the pinned version."""

        def copy(store: Store) -> bool:
            for name, digest in CHECKSUMS.items():
                content = (headers / name).read_bytes()
                if hashlib.sha256(content).hexdigest() == digest and store.get("cas", digest) is None:
                    store.put("cas", digest, content)
            return True

        if self._cache.mode == "write":
            self._with_store(copy)

    def _with_store(self, use: Callable[[Store], bool]) -> bool:
        store = open_store(self._cache.url, timeout=_TIMEOUT)
        try:
            return use(store)
        except StoreError as error:
            self._say(f"the shared cache is not used for headers: {error}")
            return False
        finally:
            store.close()
