from __future__ import annotations

import os
import subprocess
import threading

from opmatrix.basics.processes import children


def test_child_processes_of_every_thread_are_found() -> None:
    """The memory of a step includes theirs."""
    started, end = threading.Event(), threading.Event()
    processes: list[subprocess.Popen[bytes]] = []

    def work() -> None:
        processes.append(subprocess.Popen(["sleep", "60"]))
        started.set()
        end.wait()  # the child processes of a thread that ends belong to another one

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert started.wait()
        assert processes[0].pid in children(os.getpid())
    finally:
        for process in processes:
            process.kill()
            process.wait()
        end.set()
        thread.join()
