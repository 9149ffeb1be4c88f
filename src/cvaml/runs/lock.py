"""One process per run folder: a kernel lock, which the death of its owner releases."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from cvaml.types import UserError

_NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Holds the folder for this process.

    Raises:
        UserError: another process holds it. A file left by a killed process is no obstacle.
    """
    with (folder / _NAME).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise UserError(f"{folder} is in use by another process ({owner})") from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def is_locked(folder: Path | str) -> bool:
    """Whether a living process holds the folder."""
    try:
        with open(f"{folder}/{_NAME}") as file:  # noqa: PTH123 - called for thousands of folders
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True
