"""Checks of the finished site: every link within it leads somewhere, and nothing is fetched from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""Elements that make a browser load something, with the attribute that says what."""

NOT_LOADED = ("canonical", "next", "prev", "search", "index", "author", "help")
"""Relations of a ``link`` that nothing is loaded for."""


class _Page(HTMLParser):
    """What a page links to, loads, and can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.names |= {value for key in ("id", "name") if (value := known.get(key))}
        if tag == "a" and known.get("href"):
            self.links.append(known["href"] or "")
        if tag in FETCHED and known.get(FETCHED[tag]):
            if tag == "link" and any(word in NOT_LOADED for word in (known.get("rel") or "").split()):
                return
            self.loaded.append(known[FETCHED[tag]] or "")


def findings(site: Path) -> list[str]:
    """Return a line for each dead link and each thing that a browser would fetch from another place."""
    pages = {file: _Page(file.read_text()) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        place = file.relative_to(site)
        for address in page.loaded:
            parts = urlsplit(address)
            if parts.netloc or parts.scheme not in ("", "data"):
                found.append(f"{place}: loads {address}")
            elif not parts.scheme and not (file.parent / unquote(parts.path)).exists():
                found.append(f"{place}: loads {address}, which is not there")
        found += [f"{place}: {said}" for address in page.links if (said := _dead(address, file, pages))]
    for sheet in site.rglob("*.css"):
        if (
            "url(http" in sheet.read_text()
            or "url(//" in sheet.read_text()
            or "@import url" in sheet.read_text()
        ):
            found.append(f"{sheet.relative_to(site)}: loads from another place")
    return found


def _dead(address: str, file: Path, pages: dict[Path, _Page]) -> str:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not target.exists():
        return f"{address} leads nowhere"
    fragment = unquote(parts.fragment)
    if fragment and target in pages and fragment not in pages[target].names:
        return f"{address} names no place of that page"
    return ""
