"""Running code that may crash, hang or print: native solvers in a child process, programs of others by lines of JSON.

`child` starts, feeds, limits and reaps the one, `program` the other; neither knows a solver by name. What is called in a
child before its first instance (`main`, `transport`) imports little, since every run waits for it.
"""
