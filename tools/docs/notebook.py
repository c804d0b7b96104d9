"""The notebook as a page: its text, its code, and the outputs that are kept with it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any


def page(notebook: Path, pictures: Path) -> str:
    """Return a notebook as Markdown; its pictures are written beside.

    Parameters
    ----------
    notebook
        ``.ipynb``, format 4.
    pictures
        Folder for pictures, below the folder of the page.
    """
    parts = []
    for number, cell in enumerate(json.loads(notebook.read_text())["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"```python\n{source}\n```")
            parts += [_output(out, pictures / f"cell-{number}.png") for out in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


def _output(out: dict[str, Any], picture: Path) -> str:
    """Return one output: a picture, a table or text, the first that there is."""
    data = out.get("data", {})
    if "image/png" in data:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_bytes(base64.b64decode(data["image/png"]))
        return f"![What the cell above draws]({picture.parent.name}/{picture.name})"
    if "text/html" in data:
        return '```{raw} html\n<div class="wide">' + "".join(data["text/html"]) + "</div>\n```"
    text = "".join(out.get("text", data.get("text/plain", "")))
    return f"```text\n{text.rstrip()}\n```" if text.strip() else ""
