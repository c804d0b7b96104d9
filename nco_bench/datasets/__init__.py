"""From names to instances: generated sets, libraries and test sets, file formats, and the ledger of references.

It knows problems and no solver. A change that gives other numbers under the same name bumps a version.
"""
