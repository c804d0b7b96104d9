"""Networks that read a sequence and answer per token or once: Tropical Attention and its rivals, LRA's classifiers.

Their trivial baselines live here too; the room imports no other family.
"""
