import sys

from opmatrix.cluster.project_server import main

main(*sys.argv[1:])
