"""``python -m opmatrix.doctor``: what `doit doctor` prints, also where doit is missing."""

import sys

from opmatrix.basics.utf8 import use_utf8
from opmatrix.doctor.examine import main

use_utf8()
sys.exit(main(sys.argv[1:]))
