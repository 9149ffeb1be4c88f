"""A headless Chromium driven over its debugging pipe; nothing but the browser is needed."""

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


def find_chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


class Browser:
    """One page. Use it as a context manager; `errors` collects what the console reports."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()  # we write to the browser, the browser writes to us

        def attach() -> None:  # the browser reads file descriptor 3 and writes 4
            read_end, write_end = os.dup(ours[0]), os.dup(theirs[1])
            os.dup2(read_end, 3)
            os.dup2(write_end, 4)

        command = [find_chromium() or "chromium", "--headless=new", "--no-sandbox"]
        command += ["--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={self.profile.name}", "about:blank"]
        self.process = subprocess.Popen(
            command,
            pass_fds=(3, 4, ours[0], theirs[1]),
            preexec_fn=attach,
            env={**os.environ, "TMPDIR": self.profile.name},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self.to, self.back = ours[1], theirs[0]
        self.buffer, self.count = b"", 0
        self.session: str | None = None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = found["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.requests: list[str] = []
        self.resize(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        self.profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.count += 1
        message: dict[str, Any] = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.count:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _read(self, timeout: float = 60.0) -> dict[str, Any]:
        while b"\0" not in self.buffer:
            if not select.select([self.back], [], [], timeout)[0]:
                raise TimeoutError("the browser does not answer")
            self.buffer += os.read(self.back, 1 << 20)
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        method, parameters = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(parameters["exceptionDetails"])[:500])
        elif method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
            self.errors.append(json.dumps(parameters["args"])[:500])
        elif method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
            self.errors.append(parameters["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        return message

    def resize(self, width: int, height: int, phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )

    def dark(self, on: bool = True) -> None:
        feature = {"name": "prefers-color-scheme", "value": "dark" if on else "light"}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def open(self, page: Path) -> float:
        """Loads a file and waits until it says it is ready; the seconds from start to ready."""
        start = time.monotonic()
        self.call("Page.navigate", url=page.resolve().as_uri())
        while self.run("document.documentElement?.dataset.ready ?? ''") != "yes":
            if time.monotonic() - start > 30:
                raise TimeoutError(f"the page is not ready: {self.errors}")
            time.sleep(0.02)
        # Two frames later everything that was to be drawn is on the screen.
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
        return time.monotonic() - start

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited if it is a promise."""
        found = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"])[:800])
        return found["result"].get("value")

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def move(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def screenshot(self, path: Path, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))
