"""Write files whole or not at all, tell whether they changed, hash them, and load Python files without a cache."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import stat
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

# mtime_ns, ctime_ns, size, inode: they differ after each write. A program cannot set ctime, so an edit that keeps size
# and mtime shows too.
Mark = tuple[int, int, int, int]

_SECOND = 1_000_000_000
_READ = 1 << 16  # bytes of a file that are in memory at once
_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


def write_bytes(path: Path, content: bytes) -> None:
    """Write and rename, so that no reader sees half a file; a file with equal content stays untouched."""
    write_parts(path, [content])


def write_parts(path: Path, contents: Sequence[bytes | memoryview]) -> None:
    """Call `write_bytes` with contents one after the other, each a series of bytes; takes no memory for large ones."""
    try:
        if _has(path, contents):
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            for content in contents:
                file.write(content)
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)  # an error of a write names none
        temporary.unlink(missing_ok=True)
        raise


def _has(path: Path, contents: Sequence[bytes | memoryview]) -> bool:
    with path.open("rb", buffering=0) as file:
        if os.fstat(file.fileno()).st_size != sum(map(len, contents)):
            return False
        for content in contents:
            for begin in range(0, len(content), _READ):
                part = content[begin : begin + _READ]
                if file.read(len(part)) != part:
                    return False
    return True


def write_text(path: Path, text: str) -> None:
    """Call `write_bytes` with the text in UTF-8."""
    write_bytes(path, text.encode())


def write_link(link: Path, target: str) -> None:
    """Let a symbolic link point to `target`, at once; one that does so already stays untouched."""
    if not (link.is_symlink() and str(link.readlink()) == target):
        import secrets  # imported here: every command imports this module

        link.parent.mkdir(parents=True, exist_ok=True)
        made = link.with_name(f".{link.name}.{secrets.token_hex(8)}")
        made.symlink_to(target)
        made.replace(link)


def remove(path: Path) -> None:
    """Remove a file, a link or a whole folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_list(path: Path, listed: Iterable[Path | str], *, root: Path) -> None:
    """Write paths, one per line; those below `root` relative to it, so that the list is right after a move."""
    write_text(path, "".join(f"{str(one).removeprefix(f'{root}/')}\n" for one in listed))


def read_list(path: Path | str, *, root: Path | str) -> list[str]:
    """Return the absolute paths that `write_list` wrote. Raises OSError, UnicodeDecodeError."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [line if line.startswith("/") else f"{root}/{line}" for line in lines]


# A path with this lists names that a folder lacks: "/usr/local/include//math.h//stdio.h". Where one of them appears, it
# is found in place of the file that was read. One look at the folder serves for all of its names.
LACKS = "//"
NONE = "none"  # of them is there


def lacking(folder: str, names: Iterable[str]) -> str:
    """Return one path that encodes a folder and names which it lacks."""
    return LACKS.join((folder, *sorted(names)))


def present(path: str) -> str:
    """Return which of the names of `lacking` a folder has, in place of a digest, or NONE."""
    folder, *names = path.split(LACKS)
    return ", ".join(name for name in names if os.path.lexists(f"{folder}/{name}")) or NONE


def mark(path: str) -> Mark | None:
    """Return the mark of a file, or None if there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - Path.stat takes twice as long, and each doit command calls this for thousands of files
    except OSError as error:
        if error.errno not in _NO_FILE:
            raise
        return None
    except ValueError:  # a null byte: a power failure may fill a list of inputs with them
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def settled(file_mark: Mark, read_at: int) -> bool:
    """Return whether the next change of a file, whose mark was `file_mark` at `read_at` in ns, must change its mark.
    Time stamps may be as coarse as the kernel's tick, 1 to 10 ms, or whole seconds (git calls such a file racy)."""
    tick = 2 * _SECOND if file_mark[1] % _SECOND == 0 else _SECOND // 20
    return read_at - file_mark[1] > tick


def files_below(folder: str, *, ignored: Callable[[str], bool] = "__pycache__".__eq__) -> Iterator[str]:
    """Yield the files of a folder and of those in it, but for those with `ignored` names. What is gone, or cannot be
    read, has none."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if ignored(entry.name):
                continue
            try:
                is_folder = entry.is_dir()
            except OSError:  # a link to itself
                is_folder = False
            if is_folder:
                yield from files_below(entry.path, ignored=ignored)
            else:
                yield entry.path


def open_regular(path: Path | str) -> io.FileIO:
    """Open a file for reading. Raises OSError for what is no regular file, such as a pipe, a device or a folder, and
    does not wait for who writes it."""

    def require(status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))

    require(os.stat(path))  # noqa: PTH116 - as above. Before it is opened: that may wind a tape, or start a watchdog
    file = io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))
    try:
        require(os.fstat(file.fileno()))  # it may have been replaced
    except OSError:
        file.close()
        raise
    return file


def parts_of(file: io.FileIO) -> Iterator[bytes]:
    """Yield the bytes of a file, as many as it has now: those of /proc/kmsg, which has none, never end."""
    left = os.fstat(file.fileno()).st_size
    while left > 0 and (part := file.read(min(left, _READ))):
        yield part
        left -= len(part)


def sha256(path: Path | str) -> str:
    """Return the digest of a regular file as hexadecimal digits. Raises OSError for any other."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        for part in parts_of(file):
            digest.update(part)
    return digest.hexdigest()


def digest_of(path: str) -> str | None:
    """Return the digest of a file, of `lacking` what `present` does, or None where there is no file to be read."""
    try:
        return present(path) if LACKS in path else sha256(path)
    except OSError:
        return None


def digests_by_path(files: Iterable[Path], root: Path) -> dict[str, str]:
    """Return the digest of each file by its path below `root`."""
    return {path.relative_to(root).as_posix(): sha256(path) for path in files}


def line_in(path: Path | str, error: BaseException) -> int | None:
    """Return the line of a syntax error in a Python file, else the last line of the file in the traceback."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else None


def load_module(path: Path, name: str) -> ModuleType:
    """Execute a file as a module, not in sys.modules nor from bytecode, whose time stamp and size an edit may keep."""
    module = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module
