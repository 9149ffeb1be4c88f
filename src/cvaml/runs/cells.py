"""A study as cells: named pieces of work that run anywhere and are never run twice."""

import importlib
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cvaml.runs.board import Board
from cvaml.types import UserError

Tick = Callable[[], object]


@dataclass(frozen=True)
class Cell:
    """One piece of a study: a function, its arguments, and the file that shows it was done.

    The function is called as `function(root, tick, **arguments)`. It writes below `root`, and
    calls `tick()` now and then if it can: `tick` raises when the sweep was interrupted.
    """

    name: str
    """Stable: the same piece of the same study has the same name everywhere."""
    function: str
    """Import path, `module:function`, so that any process can call it."""
    arguments: Mapping[str, Any]
    """JSON values."""
    output: str
    """The file or folder below the root that this cell alone writes."""
    done: str = ""
    """The file below the root that appears last; the output itself if empty."""
    cpus: float = 1.0
    """Cores it occupies."""
    gpus: float = 0.0
    """GPUs it occupies; a fraction shares one."""
    work: float = 1.0
    """Its share of the work, in any unit, for the time left."""

    def is_done(self, root: Path) -> bool:
        """Whether the cell's last file is below `root`."""
        return (root / (self.done or self.output)).exists()

    def run(self, root: Path, tick: Tick) -> None:
        """Calls the function, here and now."""
        module, _, name = self.function.partition(":")
        getattr(importlib.import_module(module), name)(root, tick, **self.arguments)
        if not self.is_done(root):
            raise RuntimeError(f"{self.function} left no {self.done or self.output}")


@runtime_checkable
class Executor(Protocol):
    """Runs cells; tells the board what becomes of each."""

    def run(self, cells: Sequence[Cell], root: Path, board: Board) -> None:
        """Runs every cell once; one that raises is reported, the others go on."""


def run_cells(
    cells: Sequence[Cell], root: Path, executor: Executor, label: str, live: bool = True
) -> dict[str, str]:
    """Runs what is not done yet; a cell that was begun goes on from what it left.

    Args:
        cells: the study.
        root: the folder all outputs are below.
        executor: where to run them.
        label: the title of the live table.
        live: redraw the table in place on a terminal; not where cells print themselves.

    Returns:
        Names of the cells that failed, with the reasons.
    """
    if len({cell.name for cell in cells}) < len(cells):
        raise UserError("two cells of the study have the same name")
    left = [cell for cell in cells if not cell.is_done(root)]
    work = {cell.name: cell.work for cell in left}
    with Board(label, len(cells), work, live) as board:
        if left:
            executor.run(left, root, board)
    return board.failed


def find_cell(cells: Sequence[Cell], key: str) -> Cell:
    """The cell of that name, or of that number counted from 0.

    Raises:
        UserError: there is none.
    """
    for number, cell in enumerate(cells):
        if key in (cell.name, str(number)):
            return cell
    raise UserError(
        f"no cell {key!r}; allowed are 0 to {len(cells) - 1} and the names that --list shows"
    )


def reason_of(error: BaseException) -> str:
    """An exception on one line: what, and where it was raised."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
