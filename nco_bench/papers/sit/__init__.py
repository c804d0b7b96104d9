"""SIT: its published numbers, what answers them, its repeats of the last node."""
