"""`doit cache`: where results are shared, how much is there, and what to remove. A doit command."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from opmatrix.basics.errors import UsageError, many
from opmatrix.commands.base import CommandBase, as_typed, option
from opmatrix.shared_cache import settings
from opmatrix.shared_cache.store import without_password
from opmatrix.shared_cache.stores import folder_of, open_store

_TIMEOUT = 5  # seconds for the one question to a server
_NONE = (
    "no shared cache is set, or it is off: see OPMATRIX_CACHE and [tool.opmatrix.cache] of pyproject.toml, or name the "
    "URL, such as: opmatrix cache file:///srv/opmatrix-cache"
)


class Cache(CommandBase):
    """Print the settings and the size of the shared cache, or reduce its folder."""

    name = "cache"
    doc_purpose = "the shared cache: its settings and size; --gc removes what is unused for longest"
    doc_usage = "[URL]"
    doc_description = (
        "Without a URL, the cache of this project: OPMATRIX_CACHE, or url in [tool.opmatrix.cache]. --gc works in a "
        "folder (file:///...), also while doit runs; on the machine of a server, name the folder that it serves."
    )
    cmd_options = (
        option("gc", "remove leftovers, then the entries that are unused for longest", False),
        option("size", "with --gc: the size that remains, such as 10GB (default: size in pyproject.toml)"),
    )

    def execute(self, params: Mapping[str, Any], args: Sequence[str]) -> int:
        urls = [a for a in as_typed(args, command="cache") if "://" in a]
        if len(args) > 1 or len(urls) > 1 or (args and not urls):
            raise UsageError(
                f"doit cache takes one URL, such as file:///srv/opmatrix-cache, and was given {list(args)}"
            )
        if params["size"] and not params["gc"]:
            raise UsageError("doit cache: --size is for --gc")
        shared = settings.read(self._paths, os.environ) if not urls else settings.CacheSettings(url=urls[0])
        if params["gc"]:
            return _collect(shared, params["size"])
        print(_NONE if shared is None else _status(shared))
        return 0


def _status(shared: settings.CacheSettings) -> str:
    folder = folder_of(shared.url)
    lines = [f"url      {without_password(shared.url)}", f"mode     {shared.mode}"]
    if shared.prove == "local":
        lines.append("prove    local: verdicts are computed here")
    if shared.signers:
        lines.append(f"signers  {len(shared.signers)}: entries without a signature of theirs are not used")
    if folder is None:
        store, begin = open_store(shared.url, timeout=_TIMEOUT), time.monotonic()
        try:
            store.get("ac", "0" * 64)  # an entry that it does not have
        finally:
            store.close()
        took = f"answers within {(time.monotonic() - begin) * 1000:.0f} ms"
        return "\n".join([*lines, f"store    {took}; how much is there, only the server knows"])
    from opmatrix.shared_cache.gc import list_files

    listed = list_files(folder)
    size = f"{listed.size / 1e6:,.1f} MB" + (f" of at most {shared.megabytes:,} MB" if shared.megabytes else "")
    count = f"{_entries(len(listed.entries))}, {many(len(listed.blobs), 'blob')}"
    return "\n".join([*lines, f"store    {count}, {size}"])


def _collect(shared: settings.CacheSettings | None, size: str) -> int:
    from opmatrix.shared_cache.gc import collect_garbage, list_files

    if shared is None:
        raise UsageError(_NONE)
    folder = folder_of(shared.url)
    if folder is None:
        raise UsageError(
            f"{without_password(shared.url)} is no folder: its server decides what to remove. On the server's machine, "
            "name the folder that it serves: opmatrix cache --gc --size 10GB file:///FOLDER"
        )
    megabytes = settings.megabytes_in(size) if size else shared.megabytes
    if size and megabytes is None:
        raise UsageError(f"doit cache: --size: found {size!r}, allowed: a size above 0 such as '500MB' or '10GB'")
    if not folder.is_dir():
        raise UsageError(f"there is no folder '{folder}'")
    limit = None if megabytes is None else megabytes * 1_000_000
    removed = collect_garbage(folder, limit=limit)
    counts = ((removed.blobs, "blob"), (removed.partial, "interrupted write"))
    removals = [_entries(removed.entries)] * bool(removed.entries)
    text = ", ".join([*removals, *(many(count, noun) for count, noun in counts if count)]) or "nothing"
    left = f"{list_files(folder).size / 1e6:,.1f} MB are left"
    if limit is None:
        left += "; no limit is set: add --size 10GB, or size = '10 GB' to [tool.opmatrix.cache]"
    print(f"removed {text}, {removed.size / 1e6:,.1f} MB; {left}")
    return 0


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"
