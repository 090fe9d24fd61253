import sys

from opmatrix.addons.team.project_server import main

main(*sys.argv[1:])
