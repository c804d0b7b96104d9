"""Solvers that score all edges at once: DIFUSCO's network, its diffusion, and what makes tours of heat maps.

`merge`, `two_opt` and `mcts` know nothing of networks; the room imports no other family.
"""
