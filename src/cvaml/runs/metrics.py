"""Metrics of a run in long form, appended as small immutable Parquet files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cvaml.runs.folder import RunFolder
from cvaml.types import UserError

COLUMNS = (
    "variant",
    "model",
    "task",
    "seed",
    "agent_step",
    "env_step",
    "grad_step",
    "wall_s",
    "metric",
    "value",
)
_PARTS = "metrics"
_BASE = "-base.parquet"  # such a part replaces all before it


class MetricsStore:
    """Appends rows to a run folder; a kill at any moment loses at most rows not yet flushed."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._waiting: list[pd.DataFrame] = []
        self._next = 1 + max((int(p.name[:8]) for p in _files(folder.path)), default=-1)

    def add(
        self,
        members: Sequence[Mapping[str, Any]],
        counters: Mapping[str, float | int],
        values: Mapping[str, Any],
    ) -> None:
        """Keeps one row per member and metric in memory until `flush`.

        Args:
            members: per member its `variant`, `model`, `task` and `seed`.
            counters: `agent_step`, `env_step`, `grad_step` and `wall_s`.
            values: per metric one number per member, [S]; NaN means nothing to report.
        """
        frame = pd.DataFrame(list(members))
        for name, value in counters.items():
            frame[name] = value
        for metric, numbers in values.items():
            numbers = np.broadcast_to(np.asarray(numbers, np.float64), len(frame))
            rows = frame.assign(metric=metric, value=numbers)
            self._waiting.append(rows[np.isfinite(numbers)])

    def flush(self) -> None:
        """Writes the rows kept so far as one new part, whole or not at all."""
        waiting = [rows for rows in self._waiting if len(rows)]
        self._waiting = []
        if waiting:
            table = pd.concat(waiting, ignore_index=True)[list(COLUMNS)]
            self.folder.write_table(f"{_PARTS}/{self._next:08}.parquet", table)
            self._next += 1

    def truncate(self, agent_step: float | int = np.inf) -> None:
        """Merges all parts into one, without the rows after `agent_step`.

        Called when a run goes on from its checkpoint at that step, and when it is finished.
        """
        self.flush()
        table = read_metrics(self.folder.path)
        obsolete = _files(self.folder.path)
        if not obsolete:
            return
        kept = table[table["agent_step"] <= agent_step]
        self.folder.write_table(f"{_PARTS}/{self._next:08}{_BASE}", kept)
        self._next += 1
        for path in obsolete:
            path.unlink()


def read_metrics(folder: Path | str) -> pd.DataFrame:
    """All rows of a run, in the order they were written.

    Args:
        folder: a run folder.

    Returns:
        A table with `COLUMNS`; empty if the run has no metrics yet.

    Raises:
        UserError: a file there is not a metrics table.
    """
    folder = Path(folder)
    paths = _files(folder)
    # A kill may leave parts that a later base already holds: start from the newest base.
    bases = [i for i, path in enumerate(paths) if path.name.endswith(_BASE)]
    try:
        tables = [
            pd.read_parquet(path, columns=list(COLUMNS)) for path in paths[max(bases, default=0) :]
        ]
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the metrics of {folder}: {error}") from None
    tables = [table for table in tables if len(table)]
    if not tables:
        return pd.DataFrame({name: [] for name in COLUMNS})
    return pd.concat(tables, ignore_index=True)


def _files(folder: Path) -> list[Path]:
    """The parts, oldest first."""
    return sorted((folder / _PARTS).glob("[0-9]*.parquet"))
