"""Store pictures by a palette: ``python tools/shrink_pictures.py results docs`` rewrites every PNG below the folders.

Plots have a few colours and their blends with white; 256 of them show the same picture in 40 % of the bytes. A file that
would not become smaller stays as it is.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image

COLOURS = 256


def main() -> None:
    """Rewrite what gets smaller, and say how much that saved."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    folders = parser.parse_args().folders
    pictures = sorted(file for folder in folders for file in folder.rglob("*.png"))
    before = sum(file.stat().st_size for file in pictures)
    for file in pictures:
        small = by_palette(file.read_bytes())
        if small:
            file.write_bytes(small)
    after = sum(file.stat().st_size for file in pictures)
    print(f"{len(pictures)} pictures, {before:,} bytes before, {after:,} after")


def by_palette(picture: bytes) -> bytes | None:
    """Return a PNG with at most 256 colours, its resolution kept; None where that is not smaller."""
    with Image.open(io.BytesIO(picture)) as opened:
        if opened.mode == "P":
            return None
        resolution = {"dpi": opened.info["dpi"]} if "dpi" in opened.info else {}
        flat = opened.convert("RGB").quantize(
            COLOURS, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE
        )
    written = io.BytesIO()
    flat.save(written, "PNG", optimize=True, **resolution)
    return written.getvalue() if written.tell() < len(picture) else None


if __name__ == "__main__":
    main()
