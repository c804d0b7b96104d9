"""What decodings of several families share: their names, draws, symmetries, and first solutions by insertion.

It knows no network and no family.
"""
