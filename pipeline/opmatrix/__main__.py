import os
import sys

from opmatrix.cli import main
from opmatrix.step_log import SAY_DONE

process, status = os.getpid(), main()
# For a stage that runs another one: the exit code does not suffice, because any code that a stage runs may call exit.
if SAY_DONE in os.environ and status == 0 and os.getpid() == process:
    os.write(int(os.environ[SAY_DONE]), b"done")
sys.exit(status)
