import os
import sys

from opmatrix.basics.step_log import SAY_DONE
from opmatrix.basics.terminal import use_utf8
from opmatrix.commands.stages import main

use_utf8()
if sys.argv[1:2] == ["doctor"]:  # no stage: it also runs where doit, and any other package, is missing
    from opmatrix.commands.doctor import main as doctor

    sys.exit(doctor(sys.argv[2:]))
process, status = os.getpid(), main()
# The stage `sanitize` waits for this. Exit code 0 is not enough: any code that a stage runs may call exit.
if SAY_DONE in os.environ and status == 0 and os.getpid() == process:
    os.write(int(os.environ[SAY_DONE]), b"done")
sys.exit(status)
