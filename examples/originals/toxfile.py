"""The environments of the matrix in tox. tox reads this file by itself."""

from opmatrix.environments.tox_plugin import cells_of

tox_extend_envs, tox_add_core_config = cells_of(__file__)
