"""The notebook of the documentation runs as it stands, and gives what it shows.

``python tests/docs/test_notebook.py`` executes it anew and keeps the outputs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "notebook.ipynb"


def execute(folder: Path) -> Any:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    return notebook


def shown(cell: Any) -> list[str]:
    """What a cell prints and returns, as text."""
    return [
        out["text"] if out["output_type"] == "stream" else out["data"]["text/plain"] for out in cell.outputs
    ]


def code(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_notebook_gives_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCO_BENCH_RESULTS", "NCO_BENCH_INSTANCES", "NCO_BENCH_MIRROR"):
        monkeypatch.delenv(name, raising=False)
    stored, now = code(nbformat.read(NOTEBOOK, as_version=4)), code(execute(tmp_path))
    held = [(a, b) for a, b in zip(stored, now, strict=True) if "same" in a.metadata.get("tags", ())]
    assert len(held) >= 6
    for before, after in held:
        assert shown(after) == shown(before), before.source
    for before, after in zip(stored, now, strict=True):
        assert [sorted(o.get("data", {})) for o in after.outputs] == [
            sorted(o.get("data", {})) for o in before.outputs
        ]
        talk = [o for o in after.outputs if o["output_type"] == "stream"]
        assert not talk or "update_references" in after.source
    tables = [
        o["data"]["text/html"] for cell in now for o in cell.outputs if "text/html" in o.get("data", {})
    ]
    assert sum("<b>" in table for table in tables) >= 2


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(execute(Path(folder)), NOTEBOOK)
