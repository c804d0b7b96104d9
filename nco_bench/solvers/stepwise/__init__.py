"""Policies that embed an instance once, or look at a local view, and then decode step by step: AM, POMO, ELG, INViT, DGL.

`policy` holds the interfaces, a file per network; `steps` and `local_steps` take the steps, `decode` and
`local_decode` whole instances. Networks import no decoding, and the room imports no other family.
"""
