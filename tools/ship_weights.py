"""Put trained weights into nco_bench/weights/files, rounded to half precision and packed without loss.

    python tools/ship_weights.py campaign/decoder-6x128-copy.safetensors --name decoder-6x128 [--precision bf16]
    python tools/ship_weights.py --all

The first replaces what is shipped under that name; the manifest names the hash of what was rounded. Weights that are in
half precision already keep every bit, and so do those of ``--all``, which packs what lies there unpacked.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from nco_bench.files import write
from nco_bench.weights.exporting import HALVES, export_copy, find
from nco_bench.weights.manifest import manifest_path
from nco_bench.weights.packed import pack, unpack
from nco_bench.weights.store import SHIPPED, SUFFIX, WeightsFile, load_state, verify


def ship(source: str, name: str, precision: str, folder: Path = SHIPPED) -> WeightsFile:
    """Write weights and their manifest into a folder as NAME, whole or not at all; return what was written."""
    full = any(
        value.dtype.itemsize > 2 for value in load_state(find(source)).values() if value.is_floating_point()
    )
    with tempfile.TemporaryDirectory() as place:
        copy = export_copy(source, Path(place) / name, precision if full else None)
        target = folder / copy.path.name
        write(target, pack(copy.path.read_bytes()))
        write(manifest_path(target), manifest_path(copy.path).read_bytes())
    return verify(target)


def pack_all(folder: Path = SHIPPED) -> None:
    """Pack every weights file of a folder; their hashes stay."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        before = path.read_bytes()
        after = pack(unpack(before))
        if after != before:
            write(path, after)
            verify(path)
            print(f"{path.name}: {len(before):,} -> {len(after):,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weights", nargs="?", help="weights file")
    parser.add_argument("--name", help="as what they ship; the file's name by default")
    parser.add_argument("--precision", choices=[*HALVES], default="fp16")
    parser.add_argument("--all", action="store_true", help="pack what ships")
    given = parser.parse_args()
    if given.weights:
        name = given.name or Path(given.weights).stem
        made = ship(given.weights, name, given.precision)
        print(f"{made.path}: {made.path.stat().st_size:,} bytes, sha256 {made.sha256}")
    elif not given.all:
        parser.error("name a weights file, or --all")
    if given.all:
        pack_all()


if __name__ == "__main__":
    main()
