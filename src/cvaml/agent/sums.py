"""Sums of metrics on the device: they leave it in blocks, the first bad one is remembered."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

Sums = dict[str, Array]


class NotFiniteError(ArithmeticError):
    """A loss or gradient became NaN or infinite."""


@jax.jit
def add_metrics(
    sums: Sums, metrics: Mapping[str, Float[Array, " S"]], step: Int[Array, ""]
) -> Sums:
    """The sums after one more set of metrics.

    Args:
        sums: per metric its sum `total/<name>`, how many were added `count/<name>`, and the first
            step at which it was not finite, `bad/<name>`, or -1; each [S]. May be empty.
        metrics: one number per member each.
        step: where the metrics come from.

    Returns:
        The new sums; metrics not seen before are added to the table.
    """
    new = dict(sums)
    for name, values in metrics.items():
        finite = jnp.isfinite(values)
        total = sums.get(f"total/{name}", jnp.zeros_like(values))
        count = sums.get(f"count/{name}", jnp.zeros(values.shape, jnp.int32))
        bad = sums.get(f"bad/{name}", jnp.full(values.shape, -1, jnp.int32))
        new[f"total/{name}"] = total + jnp.where(finite, values, 0)
        new[f"count/{name}"] = count + 1
        new[f"bad/{name}"] = jnp.where((bad < 0) & ~finite, step, bad)
    return new


def means(sums: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Per metric the mean of what was added, [S]; call it on host copies."""
    names = [key.removeprefix("total/") for key in sums if key.startswith("total/")]
    return {name: sums[f"total/{name}"] / np.maximum(sums[f"count/{name}"], 1) for name in names}


def first_bad(sums: Mapping[str, np.ndarray]) -> tuple[int, int, str] | None:
    """The earliest (step, member, metric) that was not finite; losses before their consequences."""
    found = [
        (int(steps[member]), not key.startswith("bad/loss/"), int(member), key[len("bad/") :])
        for key, steps in sums.items()
        if key.startswith("bad/")
        for member in np.flatnonzero(steps >= 0)
    ]
    if not found:
        return None
    step, _, member, name = min(found)
    return step, member, name
