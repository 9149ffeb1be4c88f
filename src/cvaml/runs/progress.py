"""Progress of a long job: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from types import TracebackType

from tqdm import tqdm


class Progress:
    """Counts finished work and shows count, rate and time left on standard error.

    Use it as a context manager; `advance(n, note)` after each piece.
    """

    def __init__(
        self, total: int, label: str, unit: str = "it", every_s: float = 10.0, done: int = 0
    ) -> None:
        self.total, self.label, self.unit, self.every_s = total, label, unit, every_s
        self.before, self.done = done, done  # what an earlier process did has no rate here
        self.start, self.last = time.monotonic(), time.monotonic()
        terminal = sys.stderr.isatty()
        self.bar = tqdm(
            total=total, initial=done, desc=label, unit=unit, disable=not terminal, leave=False
        )
        self.plain = not terminal

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.close()

    def advance(self, count: int = 1, note: str = "") -> None:
        """Records `count` finished units, with a short note beside them."""
        self.done += count
        self.bar.update(count)
        if note:
            self.bar.set_postfix_str(note)
        now = time.monotonic()
        if self.plain and (now - self.last >= self.every_s or self.done >= self.total):
            self.last = now
            print(self.line(now - self.start, note), file=sys.stderr, flush=True)

    def due(self) -> bool:
        """Whether the next `advance` will show something, so that a costly note is worth it."""
        near_end = self.done + 1 >= self.total
        return not self.plain or near_end or time.monotonic() - self.last >= self.every_s

    def say(self, text: str) -> None:
        """Prints a line of its own without breaking the bar."""
        tqdm.write(text, file=sys.stderr)

    def line(self, elapsed: float, note: str = "") -> str:
        """One status line after `elapsed` seconds."""
        rate = (self.done - self.before) / max(elapsed, 1e-9)
        left = (self.total - self.done) / max(rate, 1e-9)
        text = f"{self.label}: {self.done}/{self.total} {self.unit}, {rate:.3g} {self.unit}/s"
        return f"{text}, {clock(left)} left{', ' + note if note else ''}"


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss or m:ss."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
