"""Classical solvers: programs and packages behind one protocol, and a few heuristics of our own.

`native` is what they share: a child process, a time limit, availability. The room imports no other family.
"""
