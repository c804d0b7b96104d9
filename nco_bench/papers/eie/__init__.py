"""EIE: its published numbers, what answers them, its figures."""
