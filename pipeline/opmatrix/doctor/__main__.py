"""``python -m opmatrix.doctor``: what `doit doctor` prints, also where doit is missing."""

import sys

from opmatrix.doctor.examine import main
from opmatrix.utf8 import use_utf8

use_utf8()
sys.exit(main(sys.argv[1:]))
