"""Put the source of the site together in a folder: pages written by hand, and those made from the project itself."""

from __future__ import annotations

import shutil
from pathlib import Path

from tools.docs import commands, notebook, papers, pictures, records, solvers
from tools.docs.markdown import relinked

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FURTHER = {"further pages": "docs/", "stored results": "results/"}
"""Lines in the index's tables of contents, replaced by the pages below these folders that no line names."""


def hand_written() -> dict[str, str]:
    """Return the Markdown files that are shown, as paths in the repository, to the names of their pages."""
    pages = {f"docs/{file.name}": file.stem for file in sorted(DOCS.glob("*.md"))}
    pages |= {
        "CONTRIBUTING.md": "contributing",
        "CHANGELOG.md": "changelog",
        "docs/notebook.ipynb": "notebook",
    }
    for file in sorted((ROOT / "results").glob("**/README.md")):
        inside = file.parent.relative_to(ROOT / "results").as_posix()
        name = "index" if inside == "." else inside.replace("/", "-")
        pages[file.relative_to(ROOT).as_posix()] = f"results/{name}"
    return pages


def assemble(source: Path) -> None:
    """Write the source of the site.

    Parameters
    ----------
    source
        Folder; what lay in it is removed.
    """
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir(parents=True)
    shutil.copytree(DOCS / "images", source / "images")
    pages = hand_written()
    places = {**pages, "results/tables": "papers/index", "results": "results/index"}
    for path, page in pages.items():
        file = ROOT / path
        text = (
            notebook.page(file, source / "notebook-pictures") if file.suffix == ".ipynb" else file.read_text()
        )
        _write(source, page, relinked(text, file, page, places, ROOT))
    _write(source, "index", _with_further((source / "index.md").read_text(), pages))
    known = records.stored(ROOT / "results")
    for page, text in {
        **commands.pages(),
        **papers.pages(ROOT / "results" / "tables", source / "papers" / "files"),
    }.items():
        _write(source, page, text)
    from nco_bench.cards import cards

    drawn = pictures.draw_all(cards().values(), known, source / "pictures")
    for page, text in solvers.pages(drawn, known).items():
        _write(source, page, text)


def _with_further(index: str, pages: dict[str, str]) -> str:
    """Name in the index the pages that it lacks, so that a new page needs no edit there."""
    named = {*index.split(), "index"}
    for line, folder in FURTHER.items():
        further = [page for path, page in pages.items() if path.startswith(folder) and page not in named]
        index = index.replace(line, "\n".join(further))
    return index


def _write(source: Path, page: str, text: str) -> None:
    file = source / f"{page}.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
