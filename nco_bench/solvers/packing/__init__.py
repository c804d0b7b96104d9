"""Packing boxes into one bin of open height: attend2pack, and greedy heuristics by extreme points and height maps.

The network builds on `stepwise` policies, the one family that this room may import.
"""
