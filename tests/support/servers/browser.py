"""Chromium without a window, as tests use it: commands of its DevTools protocol through a pair of pipes.

Source: Chrome DevTools Protocol, and Chromium's switch --remote-debugging-pipe: file descriptor 3 receives commands,
and 4 sends responses and events, each a JSON text that ends with a zero byte.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
# It needs no network, and asks for nothing by itself.
_SWITCHES = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    "--hide-scrollbars",
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-extensions", "--disable-default-apps", "--host-resolver-rules=MAP * ~NOTFOUND"),
)
_PATIENCE_SECONDS = 60.0
# Becomes the browser with its two descriptors at the numbers that it expects.
_AT_THREE_AND_FOUR = 'exec 3<&"$0" 4>&"$1"; shift; exec "$@"'


def missing() -> str | None:
    """Return what this machine lacks, or None."""
    return None if _program() else "a browser (Debian's package chromium)"


def _program() -> str | None:
    return next((found for name in _PROGRAMS if (found := shutil.which(name))), None)


class Browser:
    """A running browser with one tab; its profile is new."""

    def __init__(self) -> None:
        """Start it."""
        program = _program()
        assert program is not None
        self._folder = Path(tempfile.mkdtemp(prefix="lake-browser-"))
        inward, self._commands = os.pipe()
        self._responses, outward = os.pipe()
        self._buffer = b""
        self._number = 0
        self.messages: list[str] = []
        command = [
            *("bash", "-c", _AT_THREE_AND_FOUR, str(inward), str(outward)),
            *(program, "--remote-debugging-pipe", f"--user-data-dir={self._folder}", *_SWITCHES),
        ]
        self._process = subprocess.Popen(
            command,
            pass_fds=(inward, outward),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(inward)
        os.close(outward)
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what the page reports meanwhile is added to `messages`."""
        self._number += 1
        sent: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            sent["sessionId"] = self._session
        os.write(self._commands, json.dumps(sent).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is shown."""
        self.call("Page.navigate", url=path.as_uri())
        for _ in range(600):
            if (
                self.run("document.readyState") == "complete"
                and self.run("location.href") == path.as_uri()
            ):
                return
            time.sleep(0.05)
        raise RuntimeError(f"{path} does not load")

    def run(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def show(self, width: int, *, dark: bool = False, medium: str = "") -> None:
        """Set the width of the window in pixels, the colour scheme, and the medium, such as `print`."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])

    def picture(self, *, whole: bool = False) -> bytes:
        """Return a PNG file of the window, or of the whole page."""
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        return base64.b64decode(shot["data"])

    def end(self) -> None:
        """Stop it and remove its files."""
        os.close(self._commands)
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._responses)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._responses], [], [], _PATIENCE_SECONDS)
            more = os.read(self._responses, 1 << 20) if ready else b""
            if not more:
                raise RuntimeError("the browser does not respond")
            self._buffer += more
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        if found.get("method") in {
            "Log.entryAdded",
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
        }:
            self.messages.append(json.dumps(found["params"]))
        return found
