"""What a fresh clone costs, at another path and with another HOME, when a shared cache has everything.

    ./run python benchmarks/sharing.py [--rounds 5] [--latency 20]

One clone computes all and stores it, signed. Then each round makes a fresh clone and runs `doit -n 2` in it, with the
cache in a folder, and on nginx behind LATENCY milliseconds for each way there and back. `nothing to do` is the next
`doit` in that clone. `alone` is the clone that computed all, measured once. nginx comes from Debian's package
nginx-light; without it that row is left out. With --smallest one operator is compiled, which tests that the program
works.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from measuring import DOIT, HEAD, ROOT, Measured, arguments, copy_project, measure, nothing, ratio

sys.path.append(str(ROOT))  # tests.support
from tests.support.nginx import free_port, nginx

OP = "group_norm"
GOALS = {"folder": "goal: 5 CPU s, 8 s", "nginx": "goal: 10 CPU s, 16 s"}


def make_key(folder: Path) -> tuple[Path, str]:
    """Return the file of a new private key, and the line that allows its signatures."""
    key = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key, f"ci@example.org {' '.join(key.with_suffix('.pub').read_text().split()[:2])}"


def fresh(folder: Path, signer: str, *, operator: str) -> Path:
    """Make a clone in a new folder, with a HOME next to it.

    Where thousands of files were just removed, ext4 without a journal takes 10 times as long for new ones: it looks for
    inodes that were not in use for 5 s (`recently_deleted`, Linux 6). So no round removes those of the last.
    """
    folder.mkdir(parents=True)
    project = copy_project(folder, operator=operator)
    settings = project / "pyproject.toml"
    settings.write_text(f'{settings.read_text()}\n[tool.opmatrix.cache]\nsigners = ["{signer}"]\n')
    (folder / "home").mkdir()
    return project


@contextmanager
def variables(changed: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment, and restore them."""
    before = dict(os.environ)
    os.environ.update(changed)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def forward(listening: socket.socket, port: int, seconds: float) -> None:
    """Forward connections to a port of this machine, each piece of data `seconds` later."""

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop, last = asyncio.get_running_loop(), 0.0
        while data := await reader.read(1 << 16):
            last = max(last, loop.time() + seconds)
            loop.call_at(last, writer.write, data)
        loop.call_at(max(last, loop.time() + seconds), writer.close)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * seconds)  # of the handshake
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    async def serve() -> None:
        async with await asyncio.start_server(connected, sock=listening) as server:
            await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def behind(port: int, milliseconds: float) -> Iterator[int]:
    """Yield a port that forwards to another, with a latency there and back."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        delayed = (listening, port, milliseconds / 2000)
        process = multiprocessing.get_context("fork").Process(target=forward, args=delayed, daemon=True)
        process.start()
        yield listening.getsockname()[1]
        process.kill()
        process.join()


def show(name: str, found: Measured, alone: Measured, goal: str = "") -> None:
    print(f"{name:28} {found}   {ratio(alone, found) if found is not alone else ''}  {goal}".rstrip(), flush=True)


def main() -> None:
    parser = arguments(__doc__, rounds=5)
    parser.add_argument("--latency", type=float, default=20, help="milliseconds there and back to nginx")
    options = parser.parse_args()
    operator, tasks = (OP, (f"compile:{OP}",)) if options.smallest else ("", ())
    command = (*DOIT, "-n", "2", *tasks)
    with tempfile.TemporaryDirectory(prefix="opmatrix-sharing-") as temporary:
        folder = Path(temporary)
        key, signer = make_key(folder)
        served = folder / "server/served"  # also what nginx serves
        writing = {"OPMATRIX_CACHE": served.as_uri(), "OPMATRIX_CACHE_MODE": "write", "OPMATRIX_CACHE_KEY": str(key)}
        first = fresh(folder / "first", signer, operator=operator)
        with variables({**writing, "HOME": str(folder / "first/home")}):
            alone = measure(1, nothing, *command, cwd=first, says=" run")
        stored = sum(path.stat().st_size for path in (served / "cas").iterdir())
        entries = len([*(served / "ac").iterdir()])
        print(f"{entries} entries, {stored / 1e6:.0f} MB, signed")
        print(f"{'':28} {HEAD}   alone / this (range)")
        show("alone, and stored", alone, alone)

        def rounds(name: str, url: str) -> None:
            found = Measured(cpu=[], wall=[])
            nothing_to_do = Measured(cpu=[], wall=[])
            for number in range(options.rounds):
                other = folder / f"at another path/{name}/{number}"
                project = fresh(other, signer, operator=operator)
                with variables({"OPMATRIX_CACHE": url, "HOME": str(other / "home")}):
                    once = measure(1, nothing, *command, cwd=project, says=f"{entries} from the shared cache")
                    again = measure(1, nothing, *command, cwd=project, says="all up to date")
                for all_rounds, one in ((found, once), (nothing_to_do, again)):
                    all_rounds.cpu.extend(one.cpu)
                    all_rounds.wall.extend(one.wall)
            show(f"from {name}", found, alone, GOALS[name.partition(",")[0].removeprefix("a ")])
            show("  nothing to do", nothing_to_do, alone)

        rounds("a folder", served.as_uri())
        if os.environ.get("OPMATRIX_NGINX") or shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"):
            with nginx(folder / "server", port=free_port()) as server:
                port = int(re.search(r":(\d+)", server.url)[1])
                with behind(port, options.latency) as delayed:
                    rounds(f"nginx, {options.latency:g} ms", f"http://127.0.0.1:{delayed}")
        else:
            print("nginx is not installed: apt-get install nginx-light")


if __name__ == "__main__":
    main()
