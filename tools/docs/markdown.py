"""Small pieces of MyST Markdown, and links that are right wherever a page ends up."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

LINK = re.compile(r"(?<!!)\[([^\]\n]*)\]\(([^()\s#:]+)(#[^()\s]*)?\)")
NAMED = re.compile(r"[^a-z0-9]+")


def anchor(text: str) -> str:
    """Return a name that a link can end with."""
    return NAMED.sub("-", text.lower()).strip("-")


def cell(text: object) -> str:
    """Return text that a table's cell can hold."""
    return " ".join(str(text).split()).replace("|", "\\|")


def plain(text: object) -> str:
    """Return text that Markdown shows as it is, whatever stands in it."""
    return re.sub(r"([\\`*_<>\[\]{}$~^|#])", r"\\\1", " ".join(str(text).split()))


def table(head: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[int] = ()) -> str:
    """Return a table; cells are Markdown, columns named in `right` are numbers."""
    at = set(right)
    rule = "|".join("---:" if place in at else "---" for place in range(len(head)))
    lines = ["| " + " | ".join(cell(title) for title in head) + " |", f"|{rule}|"]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def facts(known: Mapping[str, str]) -> str:
    """Return a list of names with values, which stays readable on a narrow screen; empty values are left out."""
    return "\n".join(f":{name}: {value}" for name, value in known.items() if value) + "\n"


def definitions(known: Mapping[str, str]) -> str:
    """Return terms with what they mean below each."""
    return "\n".join(f"{term}\n: {meaning}\n" for term, meaning in known.items())


def folded(title: str, body: str) -> str:
    """Return something that is shown when its title is chosen."""
    return f"<details>\n<summary>{title}</summary>\n\n{body}\n\n</details>\n"


def shell(*lines: str) -> str:
    """Return commands as a block."""
    return "```text\n" + "\n".join(lines) + "\n```\n"


def toctree(pages: Iterable[str], *, hidden: bool = True) -> str:
    """Return the list of a section's pages."""
    options = ":hidden:\n" if hidden else ":maxdepth: 1\n"
    return "```{toctree}\n" + options + "\n" + "\n".join(pages) + "\n```\n"


def relinked(text: str, source: Path, page: str, pages: Mapping[str, str], root: Path) -> str:
    """Point the links of a file to the pages of the site.

    Parameters
    ----------
    text
        Markdown.
    source
        The file that it stands in; links are relative to it.
    page
        Name of the page that it becomes, such as ``results/index``.
    pages
        Paths in the repository to the names of their pages.
    root
        The repository. What lies in it and is no page is named, not linked; what does not exist Sphinx refuses.
    """

    def there(found: re.Match[str]) -> str:
        words, target, fragment = found[1], found[2], found[3] or ""
        file = Path(os.path.normpath(source.parent / target))
        if not file.is_relative_to(root) or not file.exists():
            return found[0]
        inside = file.relative_to(root).as_posix()
        if inside not in pages:
            return f"`{inside}`" if words in (target, inside) else f"{words} (`{inside}`)"
        here = PurePosixPath(page).parent
        return f"[{words}]({os.path.relpath(pages[inside], here)}.md{fragment})"

    return LINK.sub(there, text)
