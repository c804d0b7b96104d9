"""PENS: its published numbers, what answers them, its calibration."""
