"""Faults that hit a run from outside: a kill, a concurrent change, a full disk. test_fault_list.py lists all."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.incremental.conftest import Project, wait_for

pytestmark = [pytest.mark.incremental, pytest.mark.slow]


def up_to_date(project: Project) -> bool:
    return project.doit().stdout.endswith(", all up to date\n")


def recorded(project: Project) -> set[str]:
    """Return the steps whose success is in the state."""
    state = project.root / "build/state.db"
    if not state.exists():
        return set()
    database = sqlite3.connect(state)
    try:
        return {name for (name,) in database.execute("select name from step where key is not null")}
    except sqlite3.OperationalError:  # killed before it had made its tables
        return set()
    finally:
        database.close()


def holds(project: Project, process: subprocess.Popen[str]) -> bool:
    """Return whether a run holds the lock or has ended."""
    lock = project.root / "build/lock"
    return process.poll() is not None or (lock.exists() and lock.read_text() == f"{process.pid}\n")


# Sources change.


def test_a_branch_is_switched_and_switched_back(chain: Project) -> None:
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", *identity, *arguments], cwd=chain.root, check=True, capture_output=True)

    chain.write(".gitignore", "build\nran\nsteps.json\n__pycache__\n")
    git("init", "--initial-branch", "one")
    git("add", "-A")
    git("commit", "-m", "one")
    git("checkout", "-b", "two")
    chain.write("a.txt", "bye")
    git("commit", "-am", "two")
    git("checkout", "one")
    assert up_to_date(chain), "there and back is no change"
    git("checkout", "two")
    assert (chain.runs(), chain.read("build/a.so")) == (["a.g", "a.so"], "BYE")
    git("checkout", "one")
    assert (chain.runs(), chain.read("build/a.so")) == (["a.g", "a.so"], "HELLO ")


def test_an_operator_is_renamed(chain: Project) -> None:
    (chain.root / "ops/a").rename(chain.root / "ops/b")
    chain.write("build/generated/a/a.cc", "")
    chain.steps = [
        step
        | {"name": "b", "command": [c.replace("build/a", "build/b") for c in step["command"]]}
        | {field: [p.replace("build/a", "build/b") for p in step[field]] for field in ("reads", "writes")}
        for step in chain.steps
    ]
    done = chain.doit()
    assert "a is no longer in ops/: what was built for it is removed" in done.stdout
    assert chain.ran() == ["b.g", "b.so"] and not (chain.root / "build/generated/a").exists()
    assert up_to_date(chain)


# Killed.


def test_a_source_is_reverted_after_a_kill_during_a_write(chain: Project) -> None:
    chain.write("a.txt", "HELLO, written to the half # two")
    chain.set_command("half", of=0)
    process = chain.start()
    wait_for(lambda: chain.read("build/a.g") != "HELLO ")
    process.kill()
    process.communicate()
    wait_for(lambda: chain.processes() == [])
    chain.write("a.txt", "hello # one")
    chain.set_command("upper", of=0)
    chain.ran()
    assert (chain.runs(), chain.read("build/a.g")) == (["a.g"], "HELLO ")
    assert up_to_date(chain)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_killed_at_random_moments(project: Project, number: signal.Signals) -> None:
    """After each kill: no process is left, finished steps are not repeated, and the result is right."""
    dice = random.Random(number)
    project.write("a.txt", "0")
    previous = "a.txt"
    for i, server in enumerate((None, "onnx", None, "onnx", None, None)):
        project.step(f"data:{i}", "nap", previous, f"build/{i}", server=server)
        previous = f"build/{i}"
    for round in range(4):
        project.write("a.txt", str(round))
        process = project.popen(*dice.choice([(), ("-n", "2")]))
        while number != signal.SIGKILL and not holds(project, process):  # before, Python itself would handle the signal
            time.sleep(0.005)
        time.sleep(dice.uniform(0, 0.8))
        process.send_signal(number)
        output, _ = process.communicate()
        wait_for(lambda: project.processes() == [])
        assert "Traceback" not in output, output
        done = {name.partition(":")[2] for name in recorded(project)}
        done = {name for name in done if (project.root / f"build/{name}").read_text() == str(round)}
        project.ran()
        assert project.doit().returncode == 0
        assert not done & set(project.ran()), "a step that had finished was repeated"
        assert {(project.root / f"build/{i}").read_text() for i in range(6)} == {str(round)}
        assert up_to_date(project)


# Locks.


@pytest.mark.parametrize("text", ["", "1\n", "999999999\n", "no number"])
def test_a_stale_lock_file_does_not_block_a_run(chain: Project, text: str) -> None:
    """The file is no lock: the kernel holds the lock until its holder ends. 1 is a live process."""
    chain.write("build/lock", text)
    assert up_to_date(chain)


# State.


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "pages": lambda content: content[:4096] + os.urandom(len(content) - 4096),  # the header is right
    "random": lambda content: os.urandom(len(content)),
    "text": lambda content: b"this is no database" * 1000,
}


@pytest.mark.parametrize("how", ["deleted", *DAMAGES])
def test_a_damaged_state_database(chain: Project, how: str) -> None:
    state = chain.root / "build/state.db"
    content = state.read_bytes()
    state.unlink()
    if how in DAMAGES:
        state.write_bytes(DAMAGES[how](content))
    done = chain.doit()
    assert done.returncode == 0 and "Traceback" not in done.stdout + done.stderr
    assert chain.ran() == ["a.g", "a.so"]
    assert how in ("deleted", "empty") or "is not a usable database" in done.stderr
    assert up_to_date(chain)


@pytest.mark.parametrize("command", ["why", "run"])
def test_a_state_database_damaged_at_a_byte_that_opens(chain: Project, command: str) -> None:
    """Byte 20 is the space that SQLite leaves free in a page. SQLite notices at the first page that it reads."""
    state = chain.root / "build/state.db"
    content = state.read_bytes()
    state.write_bytes(content[:20] + b"\xff" + content[21:])
    chain.write("a.txt", "bye")
    done = chain.doit(command)
    assert done.returncode == 3
    assert "Traceback" not in done.stderr and done.stderr.endswith("state.broken. Run doit again\n")
    assert chain.doit().returncode == 0
    assert chain.read("build/a.so") == "BYE"


@pytest.mark.parametrize("shift", [-(10**8), 10**8], ids=["back", "ahead"])
def test_the_clock_is_set(chain: Project, shift: int) -> None:
    """By three years; the time stamps of files follow the kernel's clock."""
    chain.write(
        "sitecustomize.py",
        f"import time; real, real_ns = time.time, time.time_ns\n"
        f"time.time = lambda: real() + {shift}; time.time_ns = lambda: real_ns() + {shift} * 10**9\n",
    )
    for text in ("one", "two"):
        chain.write("a.txt", text)
        os.utime(chain.root / "a.txt", (time.time() + shift, time.time() + shift))
        assert chain.doit().returncode == 0
        assert (chain.ran(), chain.read("build/a.so")) == (["a.g", "a.so"], text.upper())
        assert up_to_date(chain)


def test_an_output_is_changed_between_two_steps(project: Project) -> None:
    project.step("codegen:a", "copy", "a.txt", "build/a.g")
    project.step("data:b", "meddle", "a.txt", "build/b", after=["codegen:a"])
    project.step("compile:a", "copy", "build/a.g", "build/a.so", after=["data:b"])
    done = project.doit()
    assert "compile:a: build/a.g was changed after codegen:a wrote it" in done.stdout
    assert project.ran() == ["a.g", "b", "a.so"]
    project.set_command("copy", of=1)
    project.doit()
    assert project.read("build/a.so") == "HELLO"
    assert up_to_date(project)


# Full and read-only disks.


def inside(project: Project, script: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in its own mount namespace, in which it may mount."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode != 0:
        pytest.skip("no mount namespaces here")
    project._write_steps()
    command = ["unshare", "-rm", "sh", "-c", script.replace("DOIT", f"{sys.executable} -m doit")]
    environment = project._environment({})
    done = subprocess.run(command, cwd=project.root, env=environment, capture_output=True, text=True)
    assert "Traceback" not in done.stdout + done.stderr, done
    return done


def test_a_full_disk(chain: Project) -> None:
    chain.step("data:b", "big", "a.txt", "build/b")
    script = (
        "cp -r build kept && mount -t tmpfs -o size=2m none build && cp -r kept/. build && DOIT; echo code $?;"
        "umount build; rm -r kept; DOIT; echo code $?; DOIT"
    )
    done = inside(chain, script)
    assert done.stdout.count("\ncode 1\n") == 1, done.stdout + done.stderr
    first, second = done.stdout.split("\ncode 1\n")
    assert "data:b FAILED" in first, done
    assert "cannot write 'build': No space left on device. Is the folder writable" in first, done
    assert second.endswith("code 0\n3 steps, all up to date\n"), done


def test_a_disk_without_room_for_logs(chain: Project) -> None:
    """Each file that is made takes one of nine inodes: the log of the server, logs of steps, their outputs."""
    script = "rm -r build; mkdir build; mount -t tmpfs -o size=1m,nr_inodes=9 none build; DOIT; echo code $?"
    done = inside(chain, script)
    assert "cannot write '" in done.stdout and "No space left on device. Is the folder" in done.stdout
    assert done.stdout.endswith("code 1\n"), done


def test_a_disk_too_full_for_the_state(chain: Project) -> None:
    script = (
        "cp -r build kept && mount -t tmpfs -o size=512k none build && cp -r kept/. build && echo bye > a.txt &&"
        "(cat /dev/zero > build/filler; DOIT; echo code $?; rm build/filler; DOIT; DOIT)"
    )
    done = inside(chain, script)
    said = done.stdout + done.stderr
    assert "is there space left?" in said and "code 3\n" in said
    assert done.stdout.endswith("2 steps, all up to date\n"), said


@pytest.mark.parametrize("built", [True, False])
def test_a_read_only_checkout(chain: Project, built: bool) -> None:
    if not built:
        shutil.rmtree(chain.root / "build")
    done = inside(chain, "mount --bind . . && mount -o remount,ro,bind . && cd $PWD && DOIT; echo code $?; DOIT list")
    assert done.stderr.startswith("cannot write to ") and "Is the folder writable" in done.stderr, done.stderr
    assert "code 3\n" in done.stdout
