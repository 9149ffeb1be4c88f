"""What every part of the package shares."""

import os


class UserError(ValueError):
    """A mistake in what the user asked for: the command line prints it on one line, exit code 2."""


def usable_cores() -> int:
    """The cores this process may use, which a container or a batch system may have limited."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
