"""The sha256 of files. A file is read again only when its time stamps, size or inode have changed."""

from __future__ import annotations

import time

from opmatrix.files import LACKS, NONE, Mark, mark, present, settled, sha256


class Fingerprints:
    """The sha256 and the marks of files: `known` those of earlier runs, `fresh` those that were computed now."""

    def __init__(self, known: dict[str, tuple[Mark, str]]) -> None:
        self._known = known
        self.fresh: dict[str, tuple[Mark, str]] = {}

    def digest(self, path: str) -> str | None:
        """Return the sha256 of a file, or None if there is no file; of `files.lacking`, what `present` does. Raises
        OSError for one that cannot be read, or is no regular file."""
        lacking = LACKS in path
        now = mark(path.partition(LACKS)[0] if lacking else path)
        if now is None:
            return NONE if lacking else None
        known = self._known.get(path)
        if known and known[0] == now:
            return known[1]
        read_at = time.time_ns()
        digest = present(path) if lacking else sha256(path)
        if settled(now, read_at):
            self._known[path] = self.fresh[path] = (now, digest)
        return digest
