"""Sums of metrics on the device: they leave it in blocks, the first bad one is remembered."""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cvaml.agent.metrics import METRICS

NAMES = tuple(METRICS)


class NotFiniteError(ArithmeticError):
    """A loss or gradient became NaN or infinite."""


class Sums(NamedTuple):
    """What was added so far, one column per name of the table: few arrays are cheap to pass on."""

    totals: Float[Array, "*S n"]
    """Sum of the finite numbers."""
    counts: Int[Array, "*S n"]
    """How many were added."""
    bad: Int[Array, "*S n"]
    """The first step at which one was not finite, or -1."""

    @classmethod
    def start(cls, members: int) -> "Sums":
        """Nothing added yet."""
        shape = (members, len(NAMES))
        return cls(jnp.zeros(shape), jnp.zeros(shape, jnp.int32), jnp.full(shape, -1, jnp.int32))


def add_metrics(sums: Sums, metrics: Mapping[str, Float[Array, ""]], step: Int[Array, ""]) -> Sums:
    """One member's sums after one more set of metrics.

    Args:
        sums: of the member.
        metrics: by names of the table; those not given are not counted.
        step: where the metrics come from.

    Returns:
        The new sums.
    """
    unknown = metrics.keys() - METRICS.keys()
    if unknown:
        raise KeyError(f"metrics outside the table: {', '.join(sorted(unknown))}")
    values = jnp.stack([metrics.get(name, jnp.zeros(())) for name in NAMES])
    given = np.array([name in metrics for name in NAMES])
    finite = jnp.isfinite(values)
    return Sums(
        totals=sums.totals + jnp.where(finite, values, 0),
        counts=sums.counts + given,
        bad=jnp.where((sums.bad < 0) & ~finite, step.astype(sums.bad.dtype), sums.bad),
    )


def means(sums: Sums) -> dict[str, np.ndarray]:
    """Per metric the mean of what was added, [S]; call it on a host copy."""
    return {
        name: np.asarray(sums.totals[:, column] / np.maximum(sums.counts[:, column], 1))
        for column, name in enumerate(NAMES)
        if np.any(sums.counts[:, column])
    }


def first_bad(sums: Sums) -> tuple[int, int, str] | None:
    """The earliest (step, member, metric) that was not finite; losses before their consequences."""
    found = [
        (int(sums.bad[member, column]), not NAMES[column].startswith("loss/"), member, column)
        for member, column in np.argwhere(np.asarray(sums.bad) >= 0).tolist()
    ]
    if not found:
        return None
    step, _, member, column = min(found)
    return step, member, NAMES[column]
