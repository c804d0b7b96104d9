"""Path policies (LEHD, BQ, SIGD, SIT, PENS, decoder-only) and all that builds solutions with them.

`policy` is the interface, a file per network; `decode` leads to `construct`, `beam` and `reconstruction` (RRC, PRC).
Networks import no decoding, and the room imports no other family.
"""
