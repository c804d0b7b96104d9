"""The command line: parse, call one function, print. A module per command, imported when the command is used.

No logic lives here, and nothing heavy is imported at the top: `--help` is there in 0.3 s.
"""

COMPLETING = "_NCO_BENCH_COMPLETE"
"""Set by the shell's script when it asks for completions, to ``complete_bash`` and so on."""
