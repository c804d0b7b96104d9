"""Ask the public advisory database about the demo's lock: ``python tools/audit.py PIP_AUDIT LOCK``.

Status 1 where an advisory names one of its versions. Where the database cannot be reached, one line says so, with status 0:
a build without the network is no finding.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

UNREACHABLE = (
    "ConnectionError",
    "ProxyError",
    "ServiceError",
    "Timeout",
    "timed out",
    "SSLError",
    "No such file",
)
TIMEOUT_SECONDS = 15


def audited(program: str, lock: str) -> tuple[dict[str, Any] | None, str]:
    """Return what pip-audit found, None where it found out nothing, and the last line that it printed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        command = [
            program,
            "--no-deps",
            "--disable-pip",
            "-r",
            lock,
            "--timeout",
            str(TIMEOUT_SECONDS),
            "-f",
            "json",
        ]
        try:
            ended = subprocess.run([*command, "-o", out], capture_output=True, text=True, check=False)
        except OSError as error:
            return None, f"{program}: {error.strerror}"
        last = (ended.stderr.strip().splitlines() or [""])[-1]
        return (json.loads(out.read_bytes()) if out.exists() and out.stat().st_size else None), last


def main() -> int:
    """Print findings, or why there are none."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("program", metavar="PIP_AUDIT")
    parser.add_argument("lock", metavar="LOCK")
    given = parser.parse_args()
    lock = given.lock
    found, last = audited(given.program, lock)
    if found is None:
        told = any(word in last for word in UNREACHABLE)
        print(f"audit: {'skipped, no advisories to be had here' if told else 'failed'} ({last[:200]})")
        return 0 if told else 1
    packages = found["dependencies"]
    findings = [
        f"{one['name']} {one['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'no version'}"
        for one in packages
        for fault in one.get("vulns", ())
    ]
    for line in findings:
        print(f"audit: {line}")
    print(f"audit: {len(packages)} packages of {lock}, {len(findings)} advisories")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
