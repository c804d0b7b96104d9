"""Download single files: from the official sites of TSPLIB and CVRPLIB, and of test sets from their authors' repositories.

TSPLIB (Heidelberg) serves every file under its own name with ``.gz``. CVRPLIB (PUC-Rio) has moved: the old folders
``/media/com_vrp/instances/SET/`` are gone, an instance is ``download/instance/NUMBER`` and its solution
``download/bks/NUMBER``, and the number stands beside the name on the page ``instances/1`` (CVRP). Files of test sets are
named by repository, commit and path, and no more of one is read than the catalogue says that it has. Nothing that a site
says becomes a file name: names come from the catalogue, and `nco_bench.datasets.pull` checks each content.
"""

from __future__ import annotations

import gzip
import html
import io
import re
import time
import zlib
from collections.abc import Callable
from functools import cache
from urllib.error import HTTPError
from urllib.parse import quote

from nco_bench.datasets import catalog
from nco_bench.datasets.formats.reading import GZIP_MAGIC
from nco_bench.downloads import TooMuchError, asked, cause
from nco_bench.errors import BadInputError

SITES = {
    "tsplib": "https://comopt.ifi.uni-heidelberg.de/software/TSPLIB95/tsp",
    "cvrplib": "https://galgos.inf.puc-rio.br/cvrplib/en",
    "testsets": "https://raw.githubusercontent.com",
}
"""Where the official sites keep their files."""
LIBRARIES = ("tsplib", "cvrplib")

Fetch = Callable[[str, str], bytes | None]
"""Folder and file name to uncompressed content, None where the source has no such file."""

MAX_FILE_BYTES = 128 << 20
"""Limit for one file, as it is sent and uncompressed; the largest of the catalogues has 14 MB."""
ATTEMPTS = 3
TRY_AGAIN = (429, 500, 502, 503, 504)
LISTED = re.compile(r'href="[^"]*/download/instance/(\d+)"[^>]*>\s*(?:<[^>]+>\s*)*([^<>]+?)\s*<')
WEB_PAGE = (b"<!doctype html", b"<html")
KINDS = {"vrp": "instance", "sol": "bks"}
BY_HAND = "set NCO_BENCH_MIRROR to a folder with the files, or pass what you got by hand with --archive"


class SourceUnreachableError(BadInputError):
    """The source as a whole cannot be reached; trying the next file would only wait longer."""


class BrokenOffError(BadInputError):
    """One download did not arrive whole, or the site was busy; another attempt may do."""


def site_files(sites: dict[str, str], timeout_s: float | None, pause_s: float) -> Fetch:
    """Return a function that downloads one file of a library.

    Parameters
    ----------
    sites
        Address by library, as in `SITES`.
    timeout_s
        For each request.
    pause_s
        Between attempts at a file whose download broke off or whose server was busy.
    """

    sizes = {file.address: file.size for entry in catalog.testsets() for file in entry.files}

    @cache
    def numbers() -> dict[str, str]:
        return _listed_numbers(f"{sites['cvrplib'].rstrip('/')}/instances/1", timeout_s, pause_s)

    def fetch(folder: str, file: str) -> bytes | None:
        library = folder.partition("/")[0]
        if library not in sites:
            return None
        base = sites[library].rstrip("/")
        if library == "testsets":
            return (
                None if file not in sizes else _file(f"{base}/{quote(file)}", timeout_s, pause_s, sizes[file])
            )
        if library == "tsplib":
            return _file(f"{base}/{file}.gz", timeout_s, pause_s)
        name, _, kind = file.rpartition(".")
        number = numbers().get(name.casefold())
        return (
            None if number is None else _file(f"{base}/download/{KINDS[kind]}/{number}", timeout_s, pause_s)
        )

    return fetch


def _listed_numbers(url: str, timeout_s: float | None, pause_s: float) -> dict[str, str]:
    """Read from CVRPLIB's table of instances which number each name has."""
    page = _get(url, timeout_s, pause_s) or b""
    links = LISTED.findall(plain(page, url).decode("utf-8", errors="replace"))
    if not links:
        raise SourceUnreachableError(
            f"{url}: no table of instances there, the site may have changed; {BY_HAND}."
        )
    return {html.unescape(name).casefold(): number for number, name in reversed(links)}


def _file(url: str, timeout_s: float | None, pause_s: float, limit: int | None = None) -> bytes | None:
    content = _get(url, timeout_s, pause_s, limit)
    if content is None:
        return None
    content = plain(content, url)
    if content[:200].lstrip().lower().startswith(WEB_PAGE):
        raise BadInputError(f"{url}: the site sent a web page in place of the file; {BY_HAND}.")
    return content


def _get(url: str, timeout_s: float | None, pause_s: float, limit: int | None = None) -> bytes | None:
    """Get what an address serves, None for 404; what breaks off is tried again from its start."""
    for attempt in range(1, ATTEMPTS):
        try:
            return _get_once(url, timeout_s, limit)
        except BrokenOffError:
            time.sleep(pause_s * attempt)
    return _get_once(url, timeout_s, limit)


def _get_once(url: str, timeout_s: float | None, limit: int | None) -> bytes | None:
    content = bytearray()
    answered = False
    try:
        with asked(url, MAX_FILE_BYTES if limit is None else limit, timeout_s=timeout_s) as answer:
            answered = True
            for piece in answer.pieces():
                content += piece
    except HTTPError as error:
        if error.code == 404:
            return None
        kind = BrokenOffError if error.code in TRY_AGAIN else BadInputError
        raise kind(
            f"{url}: the site answered {error.code} {cause(error)}; try again later, or {BY_HAND}."
        ) from None
    except TooMuchError as error:
        raise BadInputError(f"{url}: refused, the site {cause(error)}; {BY_HAND}.") from None
    except OSError as error:
        if answered and not isinstance(error, TimeoutError):
            told = f"{url}: the download broke off ({cause(error)}); run the command again, or {BY_HAND}."
            raise BrokenOffError(told) from None
        raise SourceUnreachableError(
            f"cannot reach {url} ({cause(error)}); when offline, {BY_HAND}."
        ) from None
    return bytes(content)


def plain(content: bytes, source: str) -> bytes:
    """Return content uncompressed, whether it was gzip data or not; `source` names it in errors, which are BadInputError."""
    if content[:2] != GZIP_MAGIC:
        return content
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
            out = stream.read(MAX_FILE_BYTES + 1)
    except (OSError, EOFError, zlib.error):
        raise BadInputError(f"{source}: damaged gzip data; run the command again.") from None
    if len(out) > MAX_FILE_BYTES:
        raise BadInputError(f"{source}: more than {MAX_FILE_BYTES >> 20} MiB when uncompressed.")
    return out
