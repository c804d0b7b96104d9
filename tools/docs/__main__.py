"""Build the documentation: ``python -m tools.docs [OUT]``, or ``--links`` to ask every address outside whether it answers.

Warnings are errors. Only ``--links`` uses the network.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from tools.docs.assemble import ROOT, assemble
from tools.docs.check import findings

OUT = ROOT / "build" / "docs"


def forget_this_machine(home: Path) -> None:
    """Show what ships, not the weights, folders and names of the machine that builds; fonts may stay where they are."""
    os.environ.setdefault("MPLCONFIGDIR", str(Path.home() / ".cache" / "matplotlib"))
    os.environ["HOME"] = str(home)
    os.environ["XDG_CACHE_HOME"] = str(home / ".cache")
    for name in [name for name in os.environ if name.startswith("NCO_BENCH_")]:
        del os.environ[name]


def build(out: Path, *, builder: str = "html") -> int:
    """Build the site in ``out/html``; return the exit status."""
    from sphinx.cmd.build import build_main

    out = out.resolve()
    with tempfile.TemporaryDirectory() as empty:
        forget_this_machine(Path(empty))
        assemble(out / "source")
        arguments = [
            "-q",
            "-W",
            "--keep-going",
            "-b",
            builder,
            "-c",
            str(ROOT / "docs"),
            "-d",
            str(out / "doctrees"),
        ]
        status = build_main([*arguments, str(out / "source"), str(out / builder)])
    if status or builder != "html":
        return status
    found = findings(out / "html")
    print(
        "\n".join(found) or f"written to {out / 'html' / 'index.html'}",
        file=sys.stderr if found else sys.stdout,
    )
    return int(bool(found))


def main(arguments: list[str]) -> int:
    """Build or check links; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--links", action="store_true", help="ask the addresses outside instead")
    given = parser.parse_args(arguments)
    return build(given.out, builder="linkcheck" if given.links else "html")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
