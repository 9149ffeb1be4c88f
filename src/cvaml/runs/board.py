"""The live table of a sweep: cells done, running and failed, rate and time left."""

import shutil
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType

from cvaml.runs.progress import clock

_SHOWN = 8  # names of running cells


class Board:
    """Counts what becomes of cells and shows it on standard error.

    On a terminal the table is redrawn in place; elsewhere it is one line now and then. Safe to
    call from several threads.
    """

    def __init__(
        self, label: str, total: int, work: Mapping[str, float], live: bool = True
    ) -> None:
        """Begins the table.

        Args:
            label: its title.
            total: cells of the study, those done before included.
            work: work of every cell that is not done, by name.
            live: redraw in place if standard error is a terminal.
        """
        self.label, self.total, self.work = label, total, dict(work)
        self.before = total - len(work)
        self.running: dict[str, float] = {}
        self.finished: set[str] = set()
        self.failed: dict[str, str] = {}
        self.retries = 0
        self.start = time.monotonic()
        self.live = live and sys.stderr.isatty()
        self._every_s, self._shown_at, self._height = (0.2 if self.live else 10.0), 0.0, 0
        self._lock = threading.RLock()

    def __enter__(self) -> "Board":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.refresh(force=True)

    def started(self, name: str) -> None:
        """A cell runs; the news may come late, when it has ended already."""
        with self._lock:
            if name not in self.finished and name not in self.failed:
                self.running.setdefault(name, time.monotonic())
            self.refresh()

    def done(self, name: str) -> None:
        """A cell left its results."""
        with self._lock:
            self.running.pop(name, None)
            self.finished.add(name)
            self.refresh()

    def fail(self, name: str, reason: str) -> None:
        """A cell is given up."""
        with self._lock:
            self.running.pop(name, None)
            self.failed[name] = reason
            self.say(f"{self.label}: {name} failed: {reason}")

    def retry(self, name: str, reason: str) -> None:
        """A cell was lost with its process or node and waits again."""
        with self._lock:
            self.running.pop(name, None)
            self.retries += 1
            self.say(f"{self.label}: {name} runs again: {reason}")

    def say(self, text: str) -> None:
        """Prints a line above the table."""
        with self._lock:
            self._erase()
            _write(text + "\n")
            self.refresh(force=self.live)

    def refresh(self, force: bool = False) -> None:
        """Shows the state, if it is time to."""
        with self._lock:
            now = time.monotonic()
            if not force and now - self._shown_at < self._every_s:
                return
            self._shown_at = now
            if not self.live:
                _write(self.line(now - self.start) + "\n")
                return
            self._erase()
            width = shutil.get_terminal_size().columns - 1  # a wrapped line would count as two
            lines = [line[:width] for line in self.table(now)]
            self._height = len(lines)
            _write("\n".join(lines) + "\n")

    def line(self, elapsed: float) -> str:
        """The state after `elapsed` seconds, on one line."""
        counts = f"{self.before + len(self.finished)}/{self.total} cells done, "
        counts += f"{len(self.running)} running, {len(self.failed)} failed"
        if self.retries:
            counts += f", {self.retries} retried"
        rate, left = self.rate(elapsed)
        return f"{self.label}: {counts}, {rate}, {left} left"

    def table(self, now: float) -> list[str]:
        """The state as lines of a table."""
        rate, left = self.rate(now - self.start)
        ended = len(self.finished) + len(self.failed)
        values = {
            "done": f"{self.before + len(self.finished)}/{self.total}",
            "running": str(len(self.running)),
            "waiting": str(len(self.work) - ended - len(self.running)),
            "failed": str(len(self.failed)),
            "retried": str(self.retries),
            "rate": rate,
            "left": left,
        }
        widths = [max(len(name), len(text)) + 2 for name, text in values.items()]
        head = "".join(name.rjust(w) for name, w in zip(values, widths, strict=True))
        body = "".join(text.rjust(w) for text, w in zip(values.values(), widths, strict=True))
        lines = [f"{self.label}{head}", " " * len(self.label) + body]
        oldest = sorted(self.running.items(), key=lambda item: item[1])
        lines += [f"  {clock(now - since):>8}  {name}" for name, since in oldest[:_SHOWN]]
        if len(oldest) > _SHOWN:
            lines.append(f"            and {len(oldest) - _SHOWN} more")
        return lines

    def rate(self, elapsed: float) -> tuple[str, str]:
        """Cells a minute, and the time left by the work done in `elapsed` seconds."""
        ended = [*self.finished, *self.failed]
        rate = 60 * len(self.finished) / max(elapsed, 1e-9)
        done = sum(self.work[name] for name in self.finished)
        todo = sum(self.work.values()) - sum(self.work[name] for name in ended)
        if not todo:
            return f"{rate:.3g}/min", clock(0.0)
        return f"{rate:.3g}/min", clock(todo * elapsed / done) if done else "?"

    def _erase(self) -> None:
        """Takes the table off the terminal."""
        if self._height:
            _write(f"\x1b[{self._height}A\x1b[J")
            self._height = 0


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
