"""Policies that embed an instance once, or look at a local view, and then decode step by step: AM, POMO, ELG, INViT, DGL.

`policy` holds the interfaces, a file per network, `glimpse` the fast decoder that AM, POMO and ELG share; `steps` and
`local_steps` take one step of each kind, `decode` whole instances. Networks import no decoding, and the room imports no
other family but for a layer of LEHD's, which DGL has.
"""
