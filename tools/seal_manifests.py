"""Seal the manifests of the weights in nco_bench/weights/files, after one was changed by hand; the weights stay as they are.

Usage: python tools/seal_manifests.py
"""

from __future__ import annotations

import argparse
import json

from nco_bench.files import write
from nco_bench.seals import seal_document
from nco_bench.weights.manifest import manifests_in
from nco_bench.weights.store import SHIPPED


def main() -> None:
    """Seal all whose seal is missing or does not fit, and name them."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for path in manifests_in(SHIPPED):
        before = path.read_bytes()
        values = json.loads(before)
        values.pop("sealed", None)
        values.pop("seal", None)
        sealed = seal_document(values, indent=2)
        if sealed != before:
            write(path, sealed)
            print(path.name)


if __name__ == "__main__":
    main()
