"""Faults that only a compiler, torch or ONNX Runtime can show, and every file that the default plan writes."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from opmatrix.engine.plan_cache import load_or_plan
from opmatrix.project.cells import Choice
from opmatrix.toolchain.ort_headers import INCLUDED
from tests.incremental.conftest import processes, start_doit, wait_for
from tests.incremental.real import KERNEL, RealProject
from tests.support.projects import Project as Copied

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

PLANTED = "#pragma once\n#error planted\n"


@pytest.mark.parametrize("place", ["native/group_norm/opmatrix/check.h", "native/opmatrix/check.h"])
def test_a_new_header_earlier_in_the_include_path(real: RealProject, place: str) -> None:
    """The first comes before native/include/opmatrix/check.h, the second after it and is never read."""
    real.passes()
    header = real.root / place
    header.parent.mkdir()
    header.write_text(PLANTED)
    try:
        done = real.run("compile")
    finally:
        shutil.rmtree(header.parent)
    in_front = place.startswith("native/group_norm/")
    assert (done.returncode == 1 and "#error planted" in done.stdout) == in_front
    real.passes("compile")


def test_a_header_of_onnx_runtime_is_edited(real: RealProject, tmp_path: Path) -> None:
    real.passes()
    folder = shutil.copytree(INCLUDED, tmp_path / "headers")
    environment = {"OPMATRIX_ORT_INCLUDE": str(folder)}
    real.passes("compile", **environment)
    with (folder / "onnxruntime_c_api.h").open("a") as header:
        header.write("// more\n")
    assert real.ran(real.run("compile", **environment)) == {"compile"}


def test_a_variable_that_the_compiler_reads(real: RealProject, tmp_path: Path) -> None:
    real.passes("compile")
    assert "compile" in real.would_run(CPATH=str(tmp_path)) and real.would_run() == set()


def test_other_content_of_a_kernel_with_an_older_time_stamp(real: RealProject) -> None:
    real.passes()
    before = real.paths.ort_library("group_norm").read_bytes()
    real.replace(KERNEL, "#pragma once\n", "#pragma once\ninline const volatile int older = 1;\n")
    os.utime(real.root / KERNEL, (1, 1))
    assert "compile" in real.ran(real.run("compile"))
    assert real.paths.ort_library("group_norm").read_bytes() != before


def test_a_path_with_spaces_and_umlauts(tmp_path: Path, real: RealProject) -> None:
    """Also with a dollar and a comma; the libraries equal those of any other folder."""
    real.passes()
    odd = Copied.copy(tmp_path / "mein Ördner, für $x")
    for part in ("native", "ops", "pipeline"):
        shutil.rmtree(odd.root / part, ignore_errors=True)
        shutil.copytree(real.root / part, odd.root / part)
    shutil.copy(real.root / "LICENSE", odd.root)
    odd.passes("compile")
    assert odd.paths.ort_library("group_norm").read_bytes() == real.paths.ort_library("group_norm").read_bytes()
    assert odd.doit("compile").stdout.endswith("all up to date\n")


# How many kills, and of which random moments: OPMATRIX_KILLS=20 OPMATRIX_SEED=7 is a longer test, of three minutes.
KILLS, SEED = int(os.environ.get("OPMATRIX_KILLS", "4")), int(os.environ.get("OPMATRIX_SEED", "0"))
COMPILERS = {"c++", "g++", "cc1plus", "as", "ld", "collect2", "gold", "ld.gold", "lld", "ld.lld"}
VICTIMS = ("doit", "server", "step", "ninja", "compiler")
PARTS = ("compile", "generated", "data", "register", "export", "verify", "linked", "dist")


def test_killed_at_random_moments_of_real_stages(real: RealProject) -> None:
    """doit, a server, a step, ninja or a compiler, also below `doit dist`: no process is left, and the next run gives
    the bytes of an undisturbed build, in every file that a step writes."""
    dice, hit = random.Random(SEED), list[str]()
    print(f"OPMATRIX_KILLS={KILLS} OPMATRIX_SEED={SEED}")
    shutil.rmtree(real.root / "build")  # other tests of it built models that nothing here builds again
    finish(real)
    undisturbed = written(real)
    assert len(undisturbed) > 60
    while len(hit) < KILLS:
        victim, task = dice.choice(VICTIMS), dice.choice([(), ("dist",)])
        lost = ("linked" if task else "compile",) if victim in ("ninja", "compiler") else dice.sample(PARTS, 2)
        for part in lost:
            shutil.rmtree(real.root / "build" / part, ignore_errors=True)
        hit += kill_one(real, dice, victim, *task)
        wait_for(lambda: processes(real.root) == [])
    print("killed:", ", ".join(hit))
    finish(real)
    now = written(real)
    assert now.keys() == undisturbed.keys()
    assert [path for path, content in now.items() if content != undisturbed[path]] == [], hit
    assert real.run().stdout.endswith("all up to date\n")


def kill_one(real: RealProject, dice: random.Random, victim: str, *task: str) -> list[str]:
    """Run doit, kill a process of this kind at a random moment, if there is one then, and wait for doit's end."""
    doit = start_doit(real.root, "-n", "2", *task)
    time.sleep(dice.uniform(0.2, 0.5 if victim in ("ninja", "compiler") else 2.5))
    hit: list[str] = []
    while not hit and doit.poll() is None:
        if found := [process for process, what in family(doit.pid) if what == victim]:
            with suppress(ProcessLookupError):
                os.kill(dice.choice(found), signal.SIGKILL)
                hit.append(f"{victim} of {' '.join(['doit', *task])}")
        time.sleep(dice.uniform(0, 0.05))
    output, _ = doit.communicate()
    assert "Traceback" not in output, output
    return hit


def family(process: int, what: str = "doit") -> Iterator[tuple[int, str]]:
    """Yield a process of a run and all below it, with what they are: doit starts servers, and these steps."""
    yield process, what
    children: list[str] = []
    with suppress(OSError):
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for child in children:
        name = ""
        with suppress(OSError):
            name = Path(f"/proc/{child}/comm").read_text().strip()
        below = "compiler" if name in COMPILERS else name
        yield from family(int(child), {"doit": "server", "server": "step"}.get(what, below))


def finish(real: RealProject) -> None:
    real.passes()
    real.passes("dist")


def written(real: RealProject) -> dict[str, bytes]:
    """Return the content of every file that a step wrote, without its duration. For the report, which also
    contains the changes since the last one, return only the records."""
    database = sqlite3.connect(real.root / "build/state.db")
    rows = database.execute("select detail from step where key is not null").fetchall()
    database.close()
    paths = sorted({path for (detail,) in rows for path in json.loads(detail)["outputs"]})
    files = {path: real.root / path for path in paths if not path.startswith("build/report/")}
    found = {path: bytes(f.readlink()) if f.is_symlink() else f.read_bytes() for path, f in files.items()}
    found |= {path.name: path.read_bytes() for path in real.paths.dist.iterdir()}
    report = json.loads(real.paths.report_data.read_text())
    report.pop("changes", None)
    found["report"] = json.dumps(report).encode()
    return {path: re.sub(rb'"seconds": [\d.e-]+', b"", content) for path, content in found.items()}


# Files that no step lists, by pattern, each with the reason.
UNLISTED = {
    "state.db*": "the journal",
    "lock": "the lock",
    "plan*": "the kept plan, which is checked by its key",
    "log/*/*.log": "logs: what a step printed",
    "report/verdicts.txt": "an input of the report, written by the engine",
    "report/previous.json": "the last report with other results, which a person may put there",
    "report/cache.json": "what the last report read, which the report checks by time stamps, sizes and inodes",
    "report/history/*": "the last runs, which each report carries on, and the seconds of their steps, by the engine",
    "compile/*/headers.txt": "inputs that the compiler discovered: the engine checks what is in it",
    "compile/*/.ninja_*": "ninja's own",
    "compile/*/build.ninja": "ninja's own: the text is part of the step's configuration",
    "compile/*/places.ninja": "ninja's own, as above",
    "compile/*/*.txt": "ninja's own: what it built with, so that another compiler builds anew",
    "compile/*/*.json": "ninja's own, as above, and the commands for editors",
    "compile/*/*.o": "ninja's own: objects that no other step reads",
    "compile/*/stub/*.so": "ninja's own: a stub that the torch library is linked with",
    "compile_commands.json": "the commands of all operators for editors, which no step reads",
    "hypothesis/**/*": "hypothesis' database, which no step reads",
}


def test_every_file_of_the_default_plan_is_listed(real: RealProject, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(real.root / "build", ignore_errors=True)  # of other tests, with other cells, debug builds and wheels
    assert real.run().returncode == 0
    root = real.root.resolve()
    monkeypatch.chdir(root)
    planned = load_or_plan(real.paths, choice=Choice(), environ=os.environ)
    listed = {Path(path) for step in planned for path in (*step.writes, *step.links)}
    missing = [path for step in planned if step.group in ("export", "register", "verify")
               for path in map(Path, (*step.writes, *step.links)) if not path.exists()]  # fmt: skip
    assert missing == []
    build = root / "build"
    found = {path for path in build.rglob("*") if path.is_file() or path.is_symlink()} - listed
    excepted = {path for pattern in UNLISTED for path in build.glob(pattern)}
    assert sorted(str(path.relative_to(build)) for path in found - excepted) == []
    unneeded = {path for path in excepted & listed if path.suffix not in (".o", ".json")}
    assert not unneeded, "listed, and no exception"
