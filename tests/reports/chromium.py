"""Drive headless Chromium over a pipe by the DevTools protocol: real input events, real frames, no clock to race with.

The standard library is enough: messages are JSON that ends in a zero byte, on file descriptors 3 and 4 of the browser.
Every wait is for a state of the page. `PATIENCE` only ends a test whose browser has died or hangs.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 300.0
"""Seconds after which a browser that does not answer counts as dead."""

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio",
)  # fmt: skip


class Page:
    """One open page.

    Attributes
    ----------
    console
        Warnings, errors and uncaught exceptions that the page has written.
    """

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer, self._last, self._session = b"", 0, ""
        self._events: list[dict[str, Any]] = []
        self.console: list[str] = []

    def attach(self) -> None:
        """Make a blank page and listen to it."""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: object) -> dict[str, Any]:
        """Send a command and return its result."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._last:
                assert "error" not in answer, (method, answer["error"])
                return dict(answer["result"])

    def open(self, path: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Load a file and wait for its load event."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self.send("Page.navigate", url=path.as_uri())
        while not any(e["method"] == "Page.loadEventFired" for e in self._events):
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression; a promise is awaited."""
        found = self.send("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait, frame by frame, until a JavaScript condition holds."""
        look = f"function look() {{ if ({condition}) done(true); else requestAnimationFrame(look); }}"
        self.evaluate(f"new Promise((done) => ({look})())")

    def key(self, key: str) -> None:
        """Press and release a key, such as ``Tab`` or ``Enter``."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        more: Mapping[str, object] = {"text": "\r"} if key == "Enter" else {}
        known = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.send("Input.dispatchKeyEvent", type="keyDown", **known, **more)
        self.send("Input.dispatchKeyEvent", type="keyUp", **known)

    def move(self, x: float, y: float) -> None:
        """Move the mouse to a point of the window."""
        self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write a PNG of the window, or of the whole page."""
        data = self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def _receive(self) -> dict[str, Any]:
        """Return the next message; events are kept aside."""
        deadline = time.monotonic() + PATIENCE
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"Chromium has not answered for {PATIENCE:.0f} s"
            data = os.read(self._read, 1 << 16)
            assert data, "Chromium has ended"
            self._buffer += data
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            self._keep(message)
        return message

    def _keep(self, event: dict[str, Any]) -> None:
        params = event["params"]
        if event["method"] == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] in (
            "error",
            "warning",
            "assert",
        ):
            self.console.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.console.append(params["entry"]["text"])
        self._events.append(event)


@contextmanager
def browse(profile: Path) -> Iterator[Page]:
    """Start Chromium with a fresh profile, give a blank page, and end it."""
    assert CHROMIUM is not None
    ends = [*os.pipe(), *os.pipe()]
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]  # clear of 3 and 4
    for end in ends:
        os.close(end)
    to_read, to_write, from_read, from_write = high
    actions: list[tuple[object, ...]] = [
        (os.POSIX_SPAWN_DUP2, to_read, 3),
        (os.POSIX_SPAWN_DUP2, from_write, 4),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0o600),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0o600),
    ]
    arguments = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = os.posix_spawn(CHROMIUM, arguments, os.environ, file_actions=actions, setpgroup=0)
    os.close(to_read)
    os.close(from_write)
    try:
        page = Page(to_write, from_read)
        page.attach()
        yield page
    finally:
        os.killpg(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(to_write)
        os.close(from_read)
