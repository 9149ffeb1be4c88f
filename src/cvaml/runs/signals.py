"""SIGTERM and SIGINT as a question the running loop asks, so that it can stop in good order."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818 - not an error: the user or the system asked for it
    """The run was asked to stop and left a checkpoint."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}")
        self.exit_code = 128 + number


class Requests:
    """Remembers the first signal that asked to stop."""

    number: int | None = None


@contextmanager
def stop_requests() -> Iterator[Requests]:
    """Collects stop requests instead of dying from them; a second one kills as usual."""
    requests = Requests()
    if threading.current_thread() is not threading.main_thread():
        yield requests  # only the main thread may handle signals
        return

    def remember(number: int, frame: FrameType | None) -> None:
        requests.number = number
        signal.signal(number, before[signal.Signals(number)])

    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, remember)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
