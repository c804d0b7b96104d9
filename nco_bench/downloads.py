"""Asking a server for a file without trusting it: headers, bodies and silences end, and redirects stay on the web.

urllib alone reads the whole body of a redirect, waits anew for every byte, and reads interim answers and trailers for ever.
What comes is not judged here: contents are checked by who asks.
"""

from __future__ import annotations

import http.client
import io
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import urlsplit

from nco_bench.errors import shown

TIMEOUT_SECONDS = 30.0
"""How long a server may be silent, and how long it may be slower than `SLOWEST`."""
SLOWEST = 4 << 10
"""Bytes per second, on average."""
MOST_HEADERS = 1 << 20
"""Bytes before the body, interim answers included."""
BLOCK = 1 << 20
NONE: Mapping[str, str] = {}


class TooMuchError(OSError):
    """A server that sends, or announces, more than was allowed."""


class CutOffError(OSError):
    """A body that ended early, or not by the rules."""


class Answer:
    """What a server sends: its status, how many bytes it announces (None: it does not say), and the bytes."""

    def __init__(self, response: http.client.HTTPResponse, most: int) -> None:
        self.status, self.size = response.status, response.length
        self._response, self._most = response, most

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes.

        Raises
        ------
        TooMuchError
            When it is larger than allowed; of what is yielded, nothing is beyond that.
        CutOffError
            When less comes than was announced.
        OSError
            When the connection breaks, or is silent or too slow.
        """
        if self.size is not None and self.size > self._most:
            raise TooMuchError(f"announces {self.size:,} bytes, {self._most:,} are allowed")
        came = 0
        while piece := self._piece():
            came += len(piece)
            if came > self._most:
                raise TooMuchError(f"sends more than {self._most:,} bytes")
            yield piece
        if self._response.length:  # of the announced bytes, those that are lacking
            raise CutOffError(f"cut off after {came:,} of {self.size:,} bytes")

    def _piece(self) -> bytes:
        try:
            return self._response.read1(BLOCK)
        except (http.client.HTTPException, ValueError, OverflowError) as error:
            raise CutOffError(cause(error)) from None


@contextmanager
def asked(
    url: str, most: int, *, timeout_s: float | None = None, headers: Mapping[str, str] = NONE
) -> Iterator[Answer]:
    """Ask for an address and give the answer to the block.

    Parameters
    ----------
    url
        Of the schemes http and https.
    most
        How many bytes of a body are taken.
    timeout_s
        In place of `TIMEOUT_SECONDS`.
    headers
        Of the request.

    Raises
    ------
    urllib.error.HTTPError
        For a status that is no success, among them redirects in circles and to other schemes. It is an OSError.
    OSError
        When the server cannot be reached, is silent, too slow, or speaks no HTTP.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "nco-bench", **headers})
    opener = urllib.request.build_opener(_Plain, _Secure, _Redirects)
    try:
        response = opener.open(request, timeout=timeout_s or TIMEOUT_SECONDS)
    except urllib.error.HTTPError:
        raise
    except (http.client.HTTPException, ValueError, OverflowError) as error:
        raise OSError(cause(error)) from None
    with response:
        response.allow(most + most // 8)
        yield Answer(response, most)


def cause(error: BaseException) -> str:
    """Say in one printable line why something could not be downloaded; servers have a part in it."""
    reason = getattr(error, "reason", None) or error
    return (
        shown(str(reason).partition("\n")[0], 200) or type(reason).__name__
    )  # a circle is told in several lines


class _Paced(io.RawIOBase):
    """The stream of a connection, which ends with an error where too little came, or too much."""

    def __init__(self, stream: io.RawIOBase, patience_s: float) -> None:
        self._stream, self._patience, self._began = stream, patience_s, time.monotonic()
        self.came, self.most = 0, MOST_HEADERS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        seconds = time.monotonic() - self._began
        if seconds > self._patience + self.came / SLOWEST:
            raise TimeoutError(f"too slow: {self.came:,} bytes in {seconds:.0f} s")
        if self.came > self.most:
            raise TooMuchError(f"sends more than {self.most:,} bytes")
        count = self._stream.readinto(buffer) or 0
        self.came += count
        return count

    def close(self) -> None:
        self._stream.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self._paced = _Paced(self.fp.detach(), sock.gettimeout() or TIMEOUT_SECONDS)
        self.fp = io.BufferedReader(self._paced)

    def allow(self, most: int) -> None:
        """Take so many bytes beyond those that came; what marks chunks is among them."""
        self._paced.most = self._paced.came + most + MOST_HEADERS


class _PlainConnection(http.client.HTTPConnection):
    response_class = _Response


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _Response


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_PlainConnection, req)


class _Secure(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req, context=ssl.create_default_context())


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirects to the web alone, and without reading what comes with them."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage
    ) -> Any:
        fp.close()
        return super().http_error_302(req, io.BytesIO(), code, msg, headers)

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise urllib.error.HTTPError(newurl, code, f"{msg} - a redirect out of the web", headers, fp)
        return super().redirect_request(req, fp, code, msg, headers, newurl)
