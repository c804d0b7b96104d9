"""What decodings of several families share: names, draws, symmetries, first solutions, and the loops over moves (`search`).

It knows no network and no family.
"""
