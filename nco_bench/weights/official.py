"""The table of official weights: which files there are, at which commit, with which git blob hash."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).parent / "official.csv"
RAW = "https://raw.githubusercontent.com/{repository}/{commit}/{path}"

WEIGHTS_OF = {"bq-esf": "bq"}
"""Models that are another with a logit scale of their own: they run with its weights."""


@dataclass(frozen=True)
class OfficialWeights:
    """One official file: where it is, and the git blob hash that it must have."""

    name: str
    model: str
    problem: str
    repository: str
    commit: str
    path: str
    git_blob_sha1: str
    note: str

    @property
    def url(self) -> str:
        """Address of the file at its commit."""
        return RAW.format(repository=self.repository, commit=self.commit, path=self.path)

    @property
    def source(self) -> str:
        """One line for the manifest."""
        place = f"{self.repository} at {self.commit[:12]}, {self.path}"
        return f"Official weights: {place}; {self.note or 'training was not ours'}."

    def facts(self) -> dict[str, str]:
        """Return what is known of it before it is pulled, and the command that does."""
        return {
            **asdict(self),
            "url": self.url,
            "state": "not pulled yet",
            "command": f"nco-bench weights pull {self.name}",
        }


@cache
def official_weights() -> dict[str, OfficialWeights]:
    """Return the official files by name, such as ``am-official-tsp100``."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = [{k: v for k, v in row.items() if k != "size_bytes"} for row in csv.DictReader(file)]
    return {row["name"]: OfficialWeights(**row) for row in rows}
