"""Decoder scaling: its published numbers, what answers them, its laws and their figures."""
