"""Tropical Attention: its published numbers, what answers them, its attention and training seeds."""
