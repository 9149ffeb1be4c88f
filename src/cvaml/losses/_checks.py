"""Checks of rank, k and b that run while tracing, whether or not a type checker is active."""

from typing import Any

import numpy as np


def check_rank(function: str, **arrays: tuple[Any, int]) -> None:
    """Raises ValueError naming the first argument whose rank is not the stated one."""
    for name, (array, rank) in arrays.items():
        shape = tuple(array.shape) if hasattr(array, "shape") else np.shape(array)
        if len(shape) != rank:
            raise ValueError(
                f"{function}: {name} must have {rank} dimension(s), got shape {shape}; "
                "these functions are unbatched, wrap them in jax.vmap for a batch"
            )


def check_length(function: str, **lengths: tuple[int, int]) -> None:
    """Raises ValueError naming the first argument whose length is not the stated one."""
    for name, (found, wanted) in lengths.items():
        if found != wanted:
            raise ValueError(f"{function}: {name} must have length {wanted}, got {found}")


def check_count(function: str, name: str, value: int, least: int, why: str = "") -> None:
    """Raises ValueError unless `value` is a Python integer of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{function}: {name} must be a Python integer, got {value!r}")
    if value < least:
        reason = f": {why}" if why else ""
        raise ValueError(f"{function}: {name} must be at least {least}, got {value}{reason}")
