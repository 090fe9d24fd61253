"""``python -m opmatrix.doctor``: what `doit doctor` prints, also where doit is missing."""

import sys

from opmatrix.doctor.examine import main

sys.exit(main(sys.argv[1:]))
