"""Checkpoints: written whole or not at all, beside the running program, the last two kept.

A checkpoint is a folder `checkpoints/<step>` with the state (`arrays`, by Orbax), the plain values
(`meta.json`) and a manifest of checksums. Data that only grows (replay) is not written again and
again: each checkpoint adds the rows since the one before as an immutable chunk beside it,
`checkpoints/rows/<start>-<stop>`, and names the chunks it needs.
"""

import errno
import json
import os
import shutil
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cvaml.runs.arrays import (
    Arrays,
    BrokenFileError,
    check_manifest,
    load_arrays,
    save_arrays,
    write_manifest,
)

_KEPT = 2
_TEMPORARY = ".writing-"


class CheckpointError(RuntimeError):
    """A checkpoint could not be written; those before it are intact."""


@dataclass(frozen=True)
class Rows:
    """Rows of growing data, all arrays with the rows in front.

    Where chunks overlap, the later one holds.
    """

    start: int
    """Number of the first of these rows since the beginning of the run."""
    arrays: Arrays
    """The new rows, each [rows, ...]."""
    oldest: int = 0
    """Number of the oldest row still needed, where old ones are overwritten."""


@dataclass(frozen=True)
class Written:
    """What one checkpoint cost."""

    step: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Restored:
    """What one checkpoint holds."""

    step: int
    arrays: Arrays
    meta: dict[str, Any]
    rows: tuple[Rows, ...]
    """Chunks of growing data, oldest first."""


class Checkpoints:
    """The checkpoints of one run folder; one writer at a time (the folder's lock sees to that)."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "checkpoints"
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._written: list[Written] = []

    def save(self, step: int, arrays: Arrays, meta: dict[str, Any], rows: Rows | None) -> None:
        """Starts writing a checkpoint in a second thread; waits first for the one before.

        Args:
            step: names the checkpoint; larger is newer.
            arrays: host arrays nobody will change, as `host_copy` returns them.
            meta: JSON values.
            rows: the growing data since the checkpoint before, if there is any.

        Raises:
            CheckpointError: the checkpoint before could not be written.
        """
        self.wait()
        if step in self.steps():  # right after a resume: the very same state
            return
        arguments = (step, arrays, meta, rows)
        self._thread = threading.Thread(target=self._guarded_write, args=arguments)
        self._thread.start()

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
            CheckpointError: what was being written could not be.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error = self._error, None
            raise CheckpointError(_explain(error, self.path)) from error

    def close(self) -> None:
        """Lets the write in progress come to its end, whatever the program is about to die of."""
        if self._thread is not None:
            self._thread.join()

    def written(self) -> list[Written]:
        """The checkpoints finished since the last call."""
        finished, self._written = self._written, []
        return finished

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        if not self.path.exists():
            return []
        return sorted(int(p.name) for p in self.path.iterdir() if p.name.isdigit())

    def restore(self) -> Restored | None:
        """The newest checkpoint that is whole, or None if there is none at all.

        A broken one is skipped with a warning and deleted, with every chunk only it needed.

        Raises:
            CheckpointError: there are checkpoints, but not one is whole.
        """
        found = self.steps()
        self._discard_unfinished()
        for step in reversed(found):
            try:
                restored = self._read(step)
            except (BrokenFileError, OSError, ValueError, KeyError) as error:
                warnings.warn(
                    f"checkpoint {step} is broken ({error}); trying the one before", stacklevel=2
                )
                continue
            for broken in found[found.index(step) + 1 :]:
                shutil.rmtree(self.path / f"{broken:010}")
            self._drop_chunks([*self._needed_by_kept()])
            return restored
        if found:
            raise CheckpointError(f"none of the checkpoints in {self.path} is whole")
        self._drop_chunks([])
        return None

    def read_newest(self) -> Restored:
        """The newest whole checkpoint without its rows; deletes nothing, so anyone may call it.

        Raises:
            CheckpointError: there is none.
        """
        for attempt in range(3):  # a running program may delete what we are about to read
            for step in reversed(self.steps()):
                try:
                    return self._read(step, with_rows=False)
                except (BrokenFileError, OSError, ValueError, KeyError):
                    continue
            time.sleep(attempt)
        raise CheckpointError(f"there is no whole checkpoint in {self.path}")

    def _guarded_write(self, *arguments: Any) -> None:
        try:
            done = self._write(*arguments)  # before the list is looked up: `written` replaces it
            self._written.append(done)
        except BaseException as error:  # handed to the main thread by `wait`
            self._error = error

    def _write(self, step: int, arrays: Arrays, meta: dict[str, Any], rows: Rows | None) -> Written:
        start = time.monotonic()
        chunks = self._chunks_before(rows)
        needed = sum(a.nbytes for a in arrays.values())
        needed += sum(a.nbytes for a in rows.arrays.values()) if rows else 0
        self.path.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.path).free
        if free < needed:
            raise OSError(errno.ENOSPC, f"{needed} bytes needed, {free} free")
        size = 0
        if rows is not None and _length(rows):
            name = f"rows/{rows.start:010}-{rows.start + _length(rows):010}"
            with self._finished(name) as folder:
                save_arrays(folder / "arrays", rows.arrays)
                size += write_manifest(folder)
            chunks.append(name)
        with self._finished(f"{step:010}") as folder:
            save_arrays(folder / "arrays", arrays)
            (folder / "meta.json").write_text(json.dumps({**meta, "chunks": chunks}))
            size += write_manifest(folder)
        for old in self.steps()[:-_KEPT]:
            shutil.rmtree(self.path / f"{old:010}")
        self._drop_chunks([*self._needed_by_kept()])
        return Written(step, size, time.monotonic() - start)

    def _finished(self, name: str) -> "_Whole":
        return _Whole(self.path, name)

    def _chunks_before(self, rows: Rows | None) -> list[str]:
        """The chunks written before these rows, without the overwritten ones."""
        if rows is None:
            return []
        found = sorted(f"rows/{p.name}" for p in (self.path / "rows").glob("[0-9]*-*"))
        kept = [chunk for chunk in found if _bounds(chunk)[1] > rows.oldest]
        end = max([rows.oldest, *(_bounds(chunk)[1] for chunk in kept)])
        if rows.start > end:
            raise ValueError(f"rows from {end} to {rows.start} are in no chunk")
        return kept

    def _needed_by_kept(self) -> Iterator[str]:
        for step in self.steps():
            yield from json.loads((self.path / f"{step:010}/meta.json").read_text())["chunks"]

    def _drop_chunks(self, needed: list[str]) -> None:
        for path in (self.path / "rows").glob("[0-9]*-*"):
            if f"rows/{path.name}" not in needed:
                shutil.rmtree(path)

    def _discard_unfinished(self) -> None:
        for path in [*self.path.glob(f"{_TEMPORARY}*"), *self.path.glob(f"rows/{_TEMPORARY}*")]:
            shutil.rmtree(path)

    def _read(self, step: int, with_rows: bool = True) -> Restored:
        folder = self.path / f"{step:010}"
        check_manifest(folder)
        meta = json.loads((folder / "meta.json").read_text())
        rows = []
        for chunk in meta["chunks"] if with_rows else ():
            check_manifest(self.path / chunk)
            rows.append(Rows(_bounds(chunk)[0], load_arrays(self.path / chunk / "arrays")))
        return Restored(step, load_arrays(folder / "arrays"), meta, tuple(rows))


class _Whole:
    """A folder that gets its name only when everything in it is written."""

    def __init__(self, path: Path, name: str) -> None:
        self.target = path / name
        self.temporary = self.target.with_name(f"{_TEMPORARY}{self.target.name}")

    def __enter__(self) -> Path:
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(parents=True)
        return self.temporary

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if self.target.exists():  # the same step again, after a resume
                shutil.rmtree(self.target)
            self.temporary.rename(self.target)
        else:
            shutil.rmtree(self.temporary, ignore_errors=True)


def _bounds(chunk: str) -> tuple[int, int]:
    start, stop = chunk.removeprefix("rows/").split("-")
    return int(start), int(stop)


def _length(rows: Rows) -> int:
    return int(np.shape(next(iter(rows.arrays.values())))[0])


def _explain(error: BaseException, path: Path) -> str:
    """One sentence for the user."""
    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if full or "No space left" in str(error) or "File too large" in str(error):
        return f"the disk of {os.fspath(path)} is full ({error}); earlier checkpoints are intact"
    return f"cannot write a checkpoint to {os.fspath(path)}: {error}; earlier ones are intact"
