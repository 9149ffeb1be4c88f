"""Runs cells in this process: one after the other, or several in threads."""

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from cvaml.runs.board import Board
from cvaml.runs.cells import Cell, Tick, reason_of
from cvaml.runs.signals import Interrupted


class Stopped(Exception):  # noqa: N818 - not an error of the cell
    """The sweep was interrupted."""


@dataclass(frozen=True)
class Inline:
    """The embedded executor. A single worker is the main thread, so signals reach the cell."""

    workers: int = 1
    """Cells at once."""

    def run(self, cells: Sequence[Cell], root: Path, board: Board) -> None:
        """Runs every cell once; one that raises is reported, the others go on."""
        if self.workers == 1:
            for cell in cells:
                _attempt(cell, root, board, board.refresh)
            return
        stop = threading.Event()

        def tick() -> None:
            if stop.is_set():
                raise Stopped

        with ThreadPoolExecutor(self.workers) as pool:
            running = [pool.submit(_attempt, cell, root, board, tick) for cell in cells]
            try:
                for future in running:
                    while not future.done():
                        try:
                            future.result(timeout=0.5)
                        except TimeoutError:
                            board.refresh()
                    future.result()
            finally:  # after Ctrl-C the threads end at their next tick
                stop.set()
                pool.shutdown(cancel_futures=True)


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _attempt(cell: Cell, root: Path, board: Board, tick: Tick) -> None:
    board.started(cell.name)
    try:
        cell.run(root, tick)
    except (Interrupted, Stopped):
        raise
    except Exception as error:
        board.fail(cell.name, reason_of(error))
    else:
        board.done(cell.name)
