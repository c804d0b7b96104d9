"""Solvers that cut an instance up, solve the pieces and put them together: GLOP and H-TSP.

Their networks build on `stepwise` policies, the one family that this room may import.
"""
